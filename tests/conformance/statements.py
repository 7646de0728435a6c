"""Keys, and statements that write. Names: see ``programs.variables``."""

from __future__ import annotations

from conformance.programs import lines

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
x = a[...]; x.flags.writeable = False; np.copyto(x, x, where=m); np.copyto(x, a)
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
x = memoryview(a); a += 1; x[1, 0] = 7.0; a[2] += x[1, 0]; x = None; a[0] = 3
x = a.T; y = np.negative(x); a[::-1] = a; z2 = np.array(a)
x = v[:]; y = x + 1; v[::-1] = v; z2 = np.array(v)
x = a.T; y = np.negative(x); a[1:] = a[:-1]; z2 = np.array(a)
x = a[1:]; a[1] = 5; x[0, 0] = 6; y = x + 1; a += 1
x = a.T; y = x + 1; x[0] = 3; y2 = x + 1; a[...] = 0
x = a.copy(); a += 1; x[0] = a[0]
x = a; x += 1
x = a + 1; y = x[::2]; x *= 2; y -= 1
x = np.broadcast_to(v, (3, 6)); v += 1
x = np.broadcast_to(v[:0], (0,)); y = np.tile(x, 2); z2 = np.trim_zeros(x)
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
