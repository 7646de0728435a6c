"""Expressions and statements every conformance mode runs. Names: see ``programs.variables``."""

from __future__ import annotations

from conformance.programs import lines

# Results may be views: they are written to afterwards.
MOVEMENT = lines("""
a.T
a.mT
t.transpose(2, 0, 1)
t.transpose((1, 0, 2))
t.transpose()
np.transpose(t, (0, 2, 1))
np.permute_dims(t, (2, 1, 0))
t.swapaxes(0, 2)
np.swapaxes(t, 0, -1)
np.moveaxis(t, 0, -1)
np.moveaxis(t, [0, 1], [-1, -2])
np.rollaxis(t, 2)
a.reshape(24)
a.reshape(6, 4)
a.reshape((2, -1, 3))
a.reshape(-1)
a.T.reshape(-1)
a.T.reshape(3, 8)
b.reshape(24)
b.reshape(24, order="F")
b.reshape(2, 12, order="A")
a[:, ::2].reshape(12)
a[::2].reshape(-1)
t.T.reshape(4, 6, order="F")
np.reshape(a, (3, 8))
np.reshape(a, (3, 8), copy=True)
e.reshape(6, 0)
z.reshape(1, 1)
z.reshape(-1)
a.ravel()
a.ravel("F")
a.ravel("K")
a.ravel("A")
b.ravel()
b.ravel("F")
b.ravel("K")
b.ravel("A")
t.T.ravel("K")
a[:, ::2].ravel("K")
a[::-1].ravel("K")
a.T.ravel()
np.ravel(a)
a.flatten()
a.flatten("F")
b.flatten("A")
b.flatten("K")
a[None]
a[:, None]
np.expand_dims(a, (0, 2))
np.squeeze(a[None, :, None])
a[:1].squeeze(0)
a[:1].squeeze()
np.flip(a)
np.flip(a, 1)
np.fliplr(a)
np.flipud(a)
np.rot90(a)
np.rot90(a, 2)
np.rot90(a, -1, (1, 0))
np.diagonal(a)
a.diagonal(1)
a.diagonal(-1, 1, 0)
np.diag(s)
np.diag(v)
np.diag(v, 2)
np.diagflat(v, -1)
np.broadcast_to(v, (3, 6))
np.broadcast_to(z, (2, 2))
np.atleast_1d(z)
np.atleast_2d(v)
np.atleast_3d(a)
np.atleast_1d(z, v)
np.split(a, 2)
np.split(a, [1, 3])
np.array_split(v, 4)
np.hsplit(a, 3)
np.vsplit(a, 2)
np.dsplit(t, 2)
np.unstack(a, axis=1)
a.view(np.int64)
a.view("i4")
a.view("f4")
i.view(np.float64)
t.view(np.int32)
a.view()
a.T.view(np.int64)
c.real
c.imag
a.real
a.imag
np.real(c)
np.imag(c)
np.meshgrid(v, v[:2])
np.meshgrid(v, v[:2], indexing="ij", copy=False)
np.meshgrid(v, v[:2], sparse=True)
np.concatenate([a, b])
np.concatenate([a, b], axis=1)
np.concatenate([a, i])
np.concatenate([a, b], axis=None)
np.concatenate([a.T, b.T])
np.concatenate([b, b], axis=0)
np.concatenate((k, u))
np.concatenate([a, aa])
np.concatenate([a, b], dtype="f4", casting="same_kind")
np.stack([a, b])
np.stack([a, b], axis=-1)
np.stack([v, v, v], axis=1)
np.vstack([a, v])
np.hstack([a, b])
np.hstack([v, v])
np.dstack([a, b])
np.column_stack([v, v])
np.block([[a, b], [b, a]])
np.append(a, b)
np.append(a, b, axis=0)
np.insert(a, 1, 5.0, axis=0)
np.delete(a, 1, axis=0)
np.delete(a, [0, 2], axis=1)
np.delete(b, 1, axis=1)
np.repeat(a, 2)
np.repeat(a, 2, axis=0)
np.repeat(v, w)
np.tile(a, 2)
np.tile(v, (2, 3))
np.roll(a, 1)
np.roll(a, 2, axis=1)
np.roll(a, (1, 2), (0, 1))
np.pad(a, 1)
np.pad(a, ((1, 0), (0, 2)), constant_values=3)
np.pad(v, 2, mode="edge")
np.pad(v, 2, mode="reflect")
np.pad(v, 2, mode="wrap")
np.tril(a)
np.triu(a, 1)
np.tril(b, -1)
np.resize(a, (5, 3))
np.trim_zeros(v)
np.copy(a)
np.copy(b.T, order="C")
np.ascontiguousarray(b)
np.asfortranarray(a)
np.take(a, [1, 2])
np.take(a, w, axis=1)
np.take(a, 1, axis=0)
np.take(a, [7, -1], axis=1, mode="wrap")
a.take([0, 1], mode="clip")
np.take_along_axis(a, np.argsort(aa, axis=1), axis=1)
np.compress([True, False, True], a, axis=0)
a.compress(n, axis=1)
np.extract(m, a)
np.choose(w % 3, [v, v + 1, v + 2])
np.select([v > 0, v < -1], [v, v * 2], 5.0)
np.sort(a)
np.sort(a, axis=0)
np.sort(a, axis=None)
np.argsort(a, kind="stable")
np.partition(v, 2)
np.argpartition(v, 2)[:2]
np.searchsorted(np.sort(vv), v)
np.lexsort((w, vv))
np.unique(w)
np.unique(w, return_counts=True)
np.nonzero(m)
m.nonzero()
np.flatnonzero(n)
np.argwhere(m)
np.where(m)
np.histogram(v, 4)
np.bincount(w)
np.digitize(v, [0.0, 1.0])
np.isin(w, [1, 2])
np.interp(v, [0.0, 1.0], [5.0, 6.0])
np.convolve(v, [1.0, 2.0])
np.cross(t[0, :, :3], t[1, :, :3])
np.median(a, axis=0)
np.percentile(a, 30)
np.average(a, weights=b * b)
np.average(a, axis=1)
np.trace(s)
s.trace()
np.gradient(v)
np.diff(a)
np.diff(a, n=2, axis=0)
np.diff(m)
np.diff(v, prepend=0)
np.ediff1d(v)
np.round(a, 1)
a.round()
np.rint(a)
np.nan_to_num(a / 0.0)
np.isclose(a, b)
np.allclose(a, a)
np.array_equal(a, b)
np.angle(c)
np.angle(c, deg=True)
np.unwrap(v)
np.sinc(v)
np.matmul(a, b.T)
a @ b.T
v @ v
a @ v
a.dot(v)
np.dot(a, b.T)
np.vdot(v, v)
np.inner(a, b)
np.outer(v, v)
np.tensordot(a, b, 2)
np.tensordot(a, b.T, 1)
np.einsum("ij,kj->ik", a, b)
np.einsum("ii->i", s)
np.kron(v, q)
np.linalg.norm(a)
np.linalg.norm(a, axis=1)
np.linalg.solve(s + 9 * np.eye(4), q)
np.linalg.det(s)
np.linalg.inv(s + 9 * np.eye(4))
np.fft.fft(v)
np.fft.rfft(v)
np.fft.fftshift(v)
np.cov(a)
np.corrcoef(a)
np.apply_along_axis(lambda r: r.sum(), 1, a)
np.zeros_like(b)
np.ones_like(a, dtype="i4")
np.full_like(b, 3)
np.empty_like(e)
np.zeros_like(t.T)
np.ones_like(a, shape=(2, 2))
a.astype("f4")
b.astype("i8")
a.astype(bool)
a.astype("f4", order="C")
b.astype("f4", order="C")
a.astype("f8", copy=False)
t.T.astype("f8")
a.astype(complex)
c.copy("F")
b.copy()
b.copy("K")
t.T.copy("A")
a.clip(0, 1)
a.clip(None, 1)
a.clip(v, v + 1)
i.clip(-2, 300)
u.clip(3, 5)
np.clip(a, 0, None)
np.clip(i, 0.5, 2.5)
np.clip(u, 0, 255)
""")

VALUES = lines("""
a + b
a - 1
1 - a
2.0 * k
k * 2.5
k + 2
u + 1
u * np.int64(3)
t + 1.5
t * np.float64(2)
h + 1
h * t[0, 0, 0]
m + m
m | n
m ^ True
~m
-a
-m.astype(int)
+a
abs(i)
a ** 2
a ** 0.5
i ** 2
2 ** q
i // 2
i % 3
i // 0
divmod(i, 3)
divmod(a, 2)
i << 2
i >> 1
i & 3
u | 5
~u
a < b
a <= 0
a == b
a != b
i == 1.5
u == 300
u < -1
i > 2**70
0 < a
a + v
v + a
a + v[:, None][:4]
a + z
z + z
z + 1
a + aa
aa + a
aa * v
vv - a
np.add(aa, b)
a + [1, 2, 3, 4, 5, 6]
[1, 2, 3, 4, 5, 6] + v
(1.0,) * v
a + np.float32(1)
t + np.float32(1)
t + np.array(1.0)
np.float64(3) * t
np.int8(3) * u
np.float64(2) - v
3j * a
c * 2
c + a
abs(c)
c.conj()
c == c
np.add(a, b, dtype="f4")
np.add(k, k, dtype=np.float64)
np.add(a, b, casting="unsafe", dtype="i8")
np.add(a, b, order="F")
np.add(a, b, order="C")
np.add(b, b, order="C")
np.multiply(a, b, where=True)
np.multiply(a, b, out=None)
np.sqrt(i)
np.sqrt(u)
np.exp(h)
np.exp(v)
np.sin(t)
np.power(v, 2)
np.arctan2(a, b)
np.hypot(a, 3)
np.maximum(a, 0)
np.minimum(a, v)
np.fmax(a, b)
np.heaviside(a, 0.5)
np.sign(a)
np.sign(c)
np.isnan(a)
np.isfinite(i)
np.logical_and(a, b)
np.logical_not(u)
np.floor(a)
np.ceil(t)
np.trunc(i)
np.modf(a)
np.frexp(a)
np.ldexp(a, i)
np.gcd(i, k)
np.lcm(u, 6)
np.bitwise_count(i)
np.copysign(a, b)
np.nextafter(a, b)
np.spacing(a)
np.positive(a)
np.reciprocal(a)
np.square(c)
np.deg2rad(a)
np.degrees(a)
np.cbrt(a)
np.float_power(i, 2)
np.logaddexp(a, b)
np.signbit(a)
np.isposinf(a)
np.add.reduce(a)
np.add.reduce(a, axis=1)
np.add.reduce(a, axis=None)
np.add.reduce(a, axis=(0, 1), keepdims=True)
np.multiply.reduce(v)
np.maximum.reduce(a, axis=1)
np.logical_or.reduce(a)
np.logical_and.reduce(m, axis=1)
np.subtract.reduce(v)
np.add.reduce(v, initial=10)
np.add.reduce(v, where=n, initial=1)
np.minimum.reduce(a, axis=0, initial=0)
np.bitwise_or.reduce(i, axis=1)
np.add.accumulate(a)
np.add.accumulate(a, axis=1)
np.multiply.accumulate(v)
np.maximum.accumulate(a, axis=1)
np.add.accumulate(k, dtype="f8")
np.add.outer(v, q)
np.multiply.outer(v, v)
np.less.outer(v, w)
np.add.reduceat(v, [0, 2, 4])
np.add.reduceat(a, [0, 3], axis=1)
a.sum()
a.sum(1)
a.sum((0, 1))
a.sum(axis=-1, keepdims=True)
m.sum()
u.sum()
u.sum(axis=0)
t.sum()
t.mean(axis=(0, 2))
h.sum()
k.mean()
c.mean(0)
a.std()
a.var(axis=0, ddof=1)
a.min()
i.max(axis=1)
a.argmax()
a.argmin(axis=0)
a.argmax(axis=1, keepdims=True)
m.any()
m.all(axis=0)
i.prod(axis=1)
u.cumsum()
a.cumsum(axis=0)
v.cumprod()
np.ptp(a)
np.count_nonzero(m)
np.count_nonzero(i, axis=1)
np.cumulative_sum(v)
np.cumulative_sum(v, include_initial=True)
np.nansum(a)
np.nanmean(a, axis=0)
np.sum([a, b])
np.sum([z, z])
np.mean(a, dtype="f4")
np.max(a, axis=1, initial=3)
np.all(a > -100)
bool(z)
bool(a.any())
int(z)
float(z)
complex(z)
len(a)
a.item(3)
a.tolist()
z.item()
list(v)
list(a)
[x for x in w]
[float(x) for x in v]
3.0 in w
v[2]
v[-1]
a[1, 2]
float(a[1, 2])
a[1, 2] + 1
operator.index(q[2])
range(q[2])
[10, 20, 30, 40][q[1]]
str(a)
repr(a)
repr(z)
f"{z:.1f}"
[x.shape for x in np.broadcast_arrays(a, v)]
a.shape, a.ndim, a.size, a.itemsize, a.nbytes, a.strides, a.dtype
a.flags.c_contiguous, b.flags.f_contiguous, a.T.flags.c_contiguous, a[:, ::2].flags.contiguous
np.shape(a), np.ndim(a), np.size(a), np.size(a, 1)
np.result_type(a, t), np.can_cast(a.dtype, "f4"), np.iscomplexobj(c), np.isrealobj(a)
np.array(a)
np.asarray(b)
np.asarray(a, dtype="f4")
np.array(a, order="F")
np.array([a, b])
np.array([z, z])
np.array([v[0], v[1]])
np.isscalar(v[0].item())
hash(v[0].item())
a.tobytes()
np.may_share_memory(a, b)
np.vectorize(lambda x: x + 1)(v)
np.fromiter(v, float)
min(v), max(v), sum(v)
sorted(w)
np.lib.stride_tricks.sliding_window_view(v, 3)
np.apply_over_axes(np.sum, a, [0, 1])
np.piecewise(v, [v < 0, v >= 0], [-1, 1])
np.polyval([1, 2, 3], v)
np.trapezoid(v)
np.where(m, a, b)
np.where(m, a, 0)
np.where(i, a, v)
np.where(True, a, b)
np.where(m, 1, 2)
np.where(m, 1.5, k)
np.cumsum(m, axis=1)
""")

KEYS = lines("""
0
-1
1, 2
-1, -1
...
..., 1
1, ...
:
:, 1
1:3
::2
::-1
:, ::-2
3:0:-1
10:20
2:1
:, 1:5:3
None
:, None
None, 1, None
..., None
(),
1:3, ..., None, 0
[0, 2]
[0, 2, 0]
[-1, 1]
:, [1, 3]
[[0, 1], [2, 3]]
[0, 1], [2, 3]
[[0], [1]], [2, 3]
1, [0, 2]
[0, 2], 1
[0, 1], None, [1, 2]
None, [0, 1]
..., [1, 2]
q
q, q
q[::-1]
:, w
qq
np.array([0, 1])
np.array(1)
np.int64(2)
np.array([], int)
[]
m
~m
a > 0
mm
:, n
n[:4]
n[:4], 1
n[:4], :2
q, n[:4].sum()
np.ix_([0, 2], [1, 3])
np.ix_(nn, [1, 2])
np.nonzero(mm)
True
False
None, True
y
np.newaxis, m
[True, False, True, False]
[True, False, True, False], [0, 1]
q > 1
q, w[:4]
slice(None), slice(1, q[3])
z.astype(int)[()]
""")

STATEMENTS = lines("""
a += b
a += 1
a -= v
a *= i
a /= 2
i //= 2
i %= 3
i **= 2
i <<= 1
i >>= 1
i &= 3
i |= 8
i ^= k
m &= n
m |= True
u += 1
k += u
t *= 2.5
c *= 2j
a += a
a += a[::-1]
a[1:] += a[:-1]
a[:, 1:] = a[:, :-1]
a[::-1] = a
a.T[...] = b.T
s += s.T
s[...] = s.T
v[1:] = v[:-1]
v[:-1] += v[1:]
v[::2] = v[1::2]
a[0] = a[1]
a[0], a[1] = a[1].copy(), a[0].copy()
a[:] = v
a[...] = 5
a[1] = [1, 2, 3, 4, 5, 6]
a[1, 2] = 9
a[1, 2] = z
a[1, 2] = a[0, 0]
a[:, 1] = q
a[:2] = a[2:]
a[m] = 0
a[m] += 1
a[a > 0] *= -1
a[mm] = 7
a[m] = b[m]
a[m] = np.arange(mm.sum())
a[~m] = z
a[:, n] = 1
a[[0, 2]] = 1
a[[0, 0]] += 1
a[q, q] = v[:4]
a[:, w] = 2
a[:, [5, 0]] = a[:, [0, 5]]
i[i < 0] = 0
u[...] = 300 % 256
i[0] = 2.7
i[...] = a
k[0] = i[0]
k[...] = a > 0
m[0] = a[0]
c.real = 1
c.imag[0] = v
c.real += a
t.T[0] = 3
t.reshape(-1)[::5] = 1
a.reshape(-1)[3] = 4
a.ravel()[3] = 4
b.ravel()[3] = 4
b.T.ravel()[3] = 4
a.view(np.int64)[0] = 0
a.flat[3] = 1
a.flat = 4
a.fill(2)
a.sort()
a.sort(axis=0)
a[:, ::2].sort()
v.partition(2)
a.shape = (6, 4)
a.shape = (2, 3, 4)
np.add(a, b, out=a)
np.add(a, b, out=b)
np.add(a, 1, out=(b,))
np.multiply(a, 2, a)
np.add(i, 1, out=a)
np.add(a[:2], 1, out=a[1:3])
np.add(a, b, out=aa)
np.add(aa, 1, out=a)
np.sin(v, out=v)
np.sqrt(i, out=a)
np.less(a, b, out=m)
np.less(a, b, out=a)
np.add(a, b, out=a, where=m)
np.add(a, 1, out=b, where=mm)
np.add(a, b, where=m, out=np.zeros_like(a))
np.divide(a, b, out=a, where=b > 0)
np.add(a, b, out=t[0, 0, 0], casting="unsafe") if False else None
np.add(a, b, out=k, casting="unsafe")
np.modf(a, a, b)
np.divmod(i, 3, out=(i, k.astype(int)))
np.sum(a, axis=0, out=v)
a.sum(axis=0, out=v)
np.mean(a, axis=0, out=v)
np.max(a, axis=0, out=v)
np.cumsum(v, out=v)
np.add.reduce(a, axis=0, out=v)
np.add.accumulate(a, axis=1, out=a)
np.add.at(v, [0, 0, 1], 1)
np.add.at(a, (q, q), 1)
np.add.at(a, ([0, 0], [1, 1]), v[:2])
np.subtract.at(v, w, 1)
np.negative.at(v, [0, 2])
np.copyto(a, b)
np.copyto(a, v)
np.copyto(a, 1, where=m)
np.copyto(i, a, casting="unsafe")
np.put(a, [0, 5], 9)
np.place(a, m, [1, 2])
np.putmask(a, m, b)
np.fill_diagonal(s, 5)
np.put_along_axis(a, q[:, None], 9, axis=1)
np.clip(a, 0, 1, out=a)
a.clip(0, 1, out=b)
np.round(a, 1, out=a)
np.matmul(s, s, out=s)
np.dot(s, s, out=s)
np.concatenate([v, v], out=aa.reshape(-1)[:12])
np.take(a, [0, 1], axis=0, out=a[2:])
np.where(m, a, b)[0] = 5
aa += a
aa[1:] += a[:-1]
aa[...] = a
aa[m] = 0
aa[0] = v
vv *= v
np.asarray(a)[0] = 5
x = np.asarray(a); a += 1; x[1] = 7; a[2] += x[1]
x = a[1:]; a[1] = 5; x[0, 0] = 6; y = x + 1; a += 1
x = a.T; y = x + 1; x[0] = 3; y2 = x + 1; a[...] = 0
x = a.copy(); a += 1; x[0] = a[0]
x = a; x += 1
x = a + 1; y = x[::2]; x *= 2; y -= 1
x = np.broadcast_to(v, (3, 6)); v += 1
x = a.reshape(-1); x[:] = 1; a[0, 0] = 2
x = a.T.reshape(-1); x[:] = 1; a[0, 0] = 2
x = a.view("i8"); a += 1; x[0] = 0
x = c.real; c *= 2; x += 1
x = a.diagonal(); a += 1
x = np.add(a, b, out=a); x += 1
x = np.split(a, 2); x[0][...] = 1
for row in a: row += 1
for j, row in enumerate(a): a[j] = row * j
for j in range(1, 6): v[j] = v[j - 1] * 0.5 + v[j]
for j in range(3): a[1:-1, 1:-1] = (a[:-2, 1:-1] + a[2:, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:]) / 4
x = (a[:, :, None] * v).sum(axis=(0, 1)); y = x / x.sum()
x = np.exp(a - a.max(axis=1, keepdims=True)); x /= x.sum(axis=1, keepdims=True)
x = a - a.mean(0); y = (x * x).mean(0) ** 0.5; x = x / y
x = np.sqrt(((a[:, None] - b[None]) ** 2).sum(-1)); y = x.argmin(1)
""")

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
