"""What raises in NumPy. Names: see ``programs.variables``."""

from __future__ import annotations

from conformance.programs import lines

ERRORS = lines("""
a + q
a + "x"
a + None
np.add(a, q)
np.add(a)
np.add(a, b, v, v)
np.add(a, b, out=v)
np.add(a, b, out=i)
np.add(a, b, out=(a, b))
np.add(a, b, out=[1])
np.add(a, b, out=a, where=v)
np.add(a, b, dtype="i4")
np.add(a, b, dtype="O4")
np.add(a, b, casting="no", dtype="f4")
np.add(a, b, casting="never")
np.add(a, b, unknown=1)
np.add(a, b, order="Q")
np.add(a, b, signature="dd->f")
np.add(a, b, dtype="f8", signature="dd->d")
np.sin("x")
np.sin(a, a, a)
np.bitwise_and(a, b)
a & b
a | 1
~a
a << 1
m - m
-m
np.subtract(m, m)
np.negative(m)
i ** -1
np.power(i, -1)
2 ** -q
u + 300
u + -1
u * 256
np.add(u, 1000)
u == "x"
k + 2**40
i + 2**70
a[4]
a[0, 6]
a[-5]
a[0, 0, 0]
a[0, 0, 0, :]
a[1.0]
a["x"]
a[a]
a[[0, 9]]
a[[0.5]]
a[[0, 1], [0, 1, 2]]
a[m[:2]]
a[n]
a[m.T]
a[..., ...]
a[q + 10]
a[:, :, None, :]
a[np.array([True, False])]
v[1, 2]
z[0]
z[:]
a[1:2:0]
a["a":]
a[4] = 1
a[0, 6] = 1
a[[0, 9]] = 1
a[0] = v[:4]
a[0] = [1, 2]
a[:2] = a[:3]
a[m] = v[:2]
a[m] = a
a[1, 2] = v
a[1, 2] = "x"
a[0] = "abc"
a["x"] = 1
i[0] = "abc"
u[0] = 300
u[0] = -1
u[...] = 256
i[0] = 2**70
i[0] = 1j
a[0] = c[0]
a[0] = 1j
a[0] = object()
a += c
i += 1.5
i += a
i /= 2
u -= 1.0
k += 2**40
m += a
m -= m
v += a
v += q
z += a
a.reshape(5, 5)
a.reshape(-1, -1)
a.reshape(-1, 5)
a.reshape(2.5)
a.reshape("x")
a.T.reshape(-1, copy=False)
np.reshape(a, (5, 5))
a.shape = (5, 5)
a.T.shape = (24,)
a.transpose(0, 0)
a.transpose(0)
a.transpose(0, 2)
a.swapaxes(0, 5)
a.squeeze(0)
np.expand_dims(a, 5)
np.moveaxis(a, 0, 5)
np.flip(a, 3)
a.view("i3")
a[:, ::2].view("f4")
a[:, :5].view("c16")
v[:5].view("c16")
a.astype("nonsense")
a.astype("i4", casting="safe")
a.astype("f4", order="Q")
a.sum(axis=2)
a.sum(axis=(0, 0))
a.sum(axis=1.5)
a.sum(axis="x")
a.sum(dtype="nonsense")
a.sum(out=v)
a.sum(axis=0, out=q)
np.sum(a, unknown=1)
np.max(e)
e.max()
e.min(axis=0)
np.argmax(e)
np.argmax(e, axis=0)
np.argmax(a, axis=5)
a.argmax(axis=(0, 1))
np.maximum.reduce(e)
np.add.reduce(a, axis=3)
np.add.reduce(a, axis=1, unknown=3)
np.divide.reduce(a, axis=None)
np.subtract.reduce(a, axis=(0, 1))
np.add.accumulate(a, axis=4)
np.add.accumulate(z)
np.sin.reduce(a)
np.modf.reduce(a)
np.add.at(v, [9], 1)
np.add.at(a, 0)
np.add.reduceat(v, [0, 9])
np.add.outer(a)
np.cumsum(a, axis=3)
np.cumulative_sum(a)
np.concatenate([a, v])
np.concatenate([])
np.concatenate([a, b], axis=3)
np.concatenate([z, z])
np.concatenate(a, 5)
np.concatenate([a, t])
np.stack([a, v])
np.stack([])
np.vstack([a, q])
np.hstack([a, q])
np.split(a, 3)
np.broadcast_to(a, (3, 6))
np.broadcast_arrays(a, q)
np.where(m, a, q)
np.where(m, a)
np.where(m)[5]
np.clip(a)
np.clip(a, 0, 1, 2, 3, 4)
np.clip(a, q, q)
a.clip(0, 1, unknown=2)
np.take(a, 100)
np.take(a, [0], axis=4)
np.repeat(v, [1, 2])
np.tile(a, "x")
np.roll(a, 1, axis=5)
np.pad(a, -1)
np.pad(a, 1, mode="nonsense")
np.dot(a, b)
a @ b
a @ q
a @ 2
np.matmul(a, 2)
np.einsum("ij,jk->ik", a, b)
np.tensordot(a, b, 1)
np.linalg.inv(a)
np.linalg.inv(np.zeros_like(s))
np.linalg.solve(np.zeros_like(s), q)
np.linalg.cholesky(-np.ones_like(s))
np.linalg.det(v)
np.fft.fft(z)
np.ix_(a)
np.diagonal(v)
np.trace(v)
np.sort(a, axis=5)
np.cross(a, b)
np.histogram(v, -1)
np.bincount(w - 5)
np.interp(v, [0.0], [1.0, 2.0])
np.choose([9], [v])
np.copyto(a, t)
np.copyto(i, a)
np.copyto(a, c)
np.put(a, 100, 1)
np.ldexp(a, b)
np.gcd(a, b)
np.left_shift(a, 1)
np.isnan("x")
np.logical_and(a, t)
bool(a)
bool(e)
int(a)
float(v)
complex(a)
len(z)
list(z)
iter(z)
operator.index(a)
operator.index(z)
range(a)
[1, 2][a]
hash(a)
if a: pass
while a > 0: break
x = a and b
x = not a
x = 0 < a < 1
a.nonsense
a.shape[5]
a.item(100)
a.item()
a()
a.T()
del a[0]
a.flags.writeable = "x"
np.broadcast_to(v, (3, 6))[0] = 1
x = a.diagonal(); x[0] = 1
x = np.broadcast_to(v, (3, 6)); x += 1
a.imag = 1
e[0]
e[:, 9]
e[[0]]
np.asarray(a, copy=False, dtype="f4")
np.array(a, dtype="nonsense")
a.__array__("f4", copy=False)
np.add.reduce(a, dtype="nonsense")
np.add(1, 2, out=a, where=m[:2])
divmod(a, "x")
a // "x"
a @ "x"
pow(a, 2, 3)
a < "x"
a < None
a == [1, 2]
a != object()
a.round("x")
a.mean(axis=5)
a.std(ddof="x")
a.var(axis=(0, 5))
a.prod(axis=9)
a.all(axis=7)
a.ptp()
a.cumsum(axis=2)
a.dot(q)
a.take([9], axis=0)
a.compress([True] * 9, axis=0)
a.repeat(-1)
a.sort(axis=4)
a.argsort(axis=4)
a.searchsorted(v)
a.trace(axis1=5)
a.fill("x")
a.flat[100]
a.reshape()
a.transpose(1, 2, 3)
a.copy("Q")
a.ravel("Q")
a.flatten("Q")
""")
