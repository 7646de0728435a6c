"""Small programs that hand arrays to other packages: each prints what they make of them.

A program has ``n`` elements in ``x``, computes what it hands over, and prints as much as tells
right from wrong. ``show`` prints numbers alike whatever the last bits of a parallel sum are.
"""

from __future__ import annotations

from textwrap import dedent, indent
from typing import NamedTuple

__all__ = ["PROGRAMS", "Program", "add", "as_function", "as_jitted", "as_script"]

_HEAD = """\
import numpy as np
def show(*items):
    for item in items:
        if isinstance(item, (float, np.floating)):
            print("%.9g" % item)
        elif isinstance(item, np.ndarray):
            print(item.dtype, item.shape, "%.9g" % np.nan_to_num(item.astype(float)).sum())
        else:
            print(type(item).__name__, item)
"""
_DATA = "n = {n}\nx = np.linspace(0.0, 1.0, n)\n"
_START = "y = np.sqrt(x * 2.0 + 1.0) * 3.0\n"


class Program(NamedTuple):
    """One program: the packages that it needs, its imports and definitions, and its body."""

    packages: tuple[str, ...]
    before: str
    body: str


def as_script(program: Program, n: int) -> str:
    """Return the program as a script."""
    return _HEAD + program.before + _DATA.format(n=n) + _START + program.body


def as_function(program: Program, n: int) -> str:
    """Return the program as a function that a script calls."""
    body = indent(_START + program.body, "    ")
    return _HEAD + program.before + f"def main(x, n):\n{body}\n{_DATA.format(n=n)}main(x, n)\n"


def as_jitted(program: Program, n: int, jitted: bool = True) -> str:
    """Return the program as a jitted function, called three times; ``jitted``: or as it is."""
    body = indent(_START + program.body, "    ")
    decorator = "import alight\n@alight.jit\n" if jitted else ""
    # Other arrays than those under global names, which text that is run finds.
    calls = "main(x + 0.0, n)\n" * 3
    return (
        _HEAD + program.before + f"{decorator}def main(x, n):\n{body}\n{_DATA.format(n=n)}{calls}"
    )


PROGRAMS: dict[str, Program] = {}


def add(name: str, packages: str, before: str, body: str) -> None:
    PROGRAMS[name] = Program(tuple(packages.split()), dedent(before), dedent(body).lstrip("\n"))


add(
    "pandas_series_copies",
    "pandas",
    "import pandas as pd\n",
    """
    s = pd.Series(y)
    i = pd.Index(y)
    y[0] = 7.0
    show(float(s.iloc[0]), float(i[0]), float(s.sum()))
""",
)
add(
    "pandas_frame_store",
    "pandas",
    "import pandas as pd\n",
    """
    df = pd.DataFrame({"a": y, "k": np.arange(n) % 5})
    df["b"] = y * 2.0
    df.loc[:, "c"] = y - 1.0
    df["d"] = df["a"] * y
    y[1] = 50.0
    show([str(d) for d in df.dtypes], float(df["b"].iloc[1]), float(df["d"].sum()))
    show(df.groupby("k")["c"].mean().to_numpy())
""",
)
add(
    "pandas_operators",
    "pandas",
    "import pandas as pd\n",
    """
    s = pd.Series(y.copy())
    show(float((s + y).sum()), float((y + s).sum()), float((s * y - y).sum()))
    show(bool((s == y).all()), int((s > y - 1.0).sum()), type(s + y).__name__)
    s += y
    show(float(s.sum()), s.dot(y))
""",
)
add(
    "pandas_masks",
    "pandas",
    "import pandas as pd\n",
    """
    s = pd.Series(np.arange(n) * 1)
    mask = y > 4.0
    show(int(s[mask].sum()), int(s.where(mask, -1).sum()),
        int(s.isin(np.arange(n)[mask][:5]).sum()))
    df = pd.DataFrame({"y": y})
    df.loc[mask, "y"] = 0.0
    show(float(df["y"].sum()), int(df[mask].size))
""",
)
add(
    "pandas_cells",
    "pandas",
    "import pandas as pd\n",
    """
    df = pd.DataFrame({"a": [1.0, 2.0]})
    df["m"] = y.mean()
    df.loc[0, "a"] = y.max()
    s = pd.Series(y)
    show([str(d) for d in df.dtypes], float(s.clip(y[2], y[-2]).sum()),
        float(s.replace(y[0], 0.0).iloc[0]))
""",
)
add(
    "pandas_cut_and_bins",
    "pandas",
    "import pandas as pd\n",
    """
    c = pd.cut(y, 4, labels=False)
    u = pd.factorize((y * 2.0).astype(int))
    show(np.asarray(c), u[0], float(pd.Series(y).rolling(3).mean().sum()),
        len(pd.unique((y * 3.0).astype(int))))
""",
)
add(
    "pandas_apply",
    "pandas",
    "import pandas as pd\n",
    """
    df = pd.DataFrame({"a": y, "b": y * 2.0})
    out = df.apply(lambda col: np.sqrt(col.to_numpy()) * y)
    show(float(out["b"].sum()), df.assign(c=lambda d: y + 1.0)["c"].sum())
    show(df.eval("a + b").sum(), float(df.query("a > 4")["b"].sum()))
""",
)
add(
    "ndimage_outputs",
    "scipy",
    "import scipy.ndimage as nd\n",
    """
    z = (y - y.min()).reshape(-1, 100)
    labels = np.zeros(z.shape, np.int32)
    count = nd.label(z > 1.0, output=labels)
    out = np.zeros(z.shape, bool)
    nd.binary_dilation(z > 1.0, output=out)
    more = np.zeros(z.shape)
    nd.gaussian_filter(z, 1.0, output=more)
    show(count, labels, out, more)
    nd.binary_erosion(z > 0.5, output=out)
    show(int(out.sum()), float((more * 2.0).sum()))
""",
)
add(
    "ndimage_distances",
    "scipy",
    "import scipy.ndimage as nd\n",
    """
    z = (y[:10000] - 3.0).reshape(100, 100)
    d = np.zeros(z.shape)
    i = np.zeros((2, *z.shape), np.int32)
    nd.distance_transform_edt(z > 0.001, return_indices=True, distances=d, indices=i)
    show(d, i, nd.binary_fill_holes(z > 0.001), nd.generic_filter(z[:20], np.max, size=3))
""",
)
add(
    "ndimage_callbacks",
    "scipy",
    "import scipy.ndimage as nd\n",
    """
    z = y[:2500].reshape(50, 50) * 1.0
    def line(a, b):
        b[...] = a[: b.size] * 2.0
    show(nd.generic_filter1d(z, line, filter_size=3),
        nd.geometric_transform(z, lambda p: (p[0] * 0.5, p[1])))
    show(nd.map_coordinates(z, [y[:4], y[:4] * 2.0]))
""",
)
add(
    "signal_filters",
    "scipy",
    "from scipy import signal\n",
    """
    b, a = signal.butter(3, 0.2)
    show(signal.lfilter(b, a, y), signal.fftconvolve(y, y[:100]), signal.detrend(y))
    zi = signal.lfilter_zi(b, a)
    out, zf = signal.lfilter(b, a, y, zi=zi * y[0])
    show(out, zf, signal.find_peaks(np.sin(y * 50.0))[0].size)
""",
)
add(
    "optimize_minimize",
    "scipy",
    "from scipy import optimize\n",
    """
    target = y[:: n // 4][:4] * 1.0
    w = y * 1.0
    def loss(v):
        r = np.full(n, v[0]) - w
        return (r * r).mean()
    def both(v):
        full = v - target
        return (full * full).sum(), 2.0 * full
    r = optimize.minimize(both, target * 0.0, jac=True, method="L-BFGS-B")
    show(np.round(r.x, 4), round(float(r.fun), 6))
    show(round(float(optimize.minimize_scalar(lambda s, kept: loss([s]), args=(w,)).x), 5))
""",
)
add(
    "optimize_residuals",
    "scipy",
    "from scipy import optimize\n",
    """
    t = x * 1.0
    data = 2.0 * t + 1.0
    r = optimize.least_squares(lambda p: p[0] * t + p[1] - data, data[:2] * 0.0)
    show(np.round(r.x, 6))
    p, cov = optimize.curve_fit(lambda t, a, b: a * t + b, t, data)
    show(np.round(p, 6), cov.shape)
""",
)
add(
    "optimize_large_gradient",
    "scipy",
    "from scipy import optimize\n",
    """
    goal = y * 0.5
    r = optimize.minimize(lambda v: (((v - goal) ** 2).sum(), (v - goal) * 2.0), x * 1.0,
        jac=True, method="L-BFGS-B", options={"maxiter": 5})
    show(round(float(r.fun), 6), r.x)
    show(optimize.approx_fprime(y[:3], lambda v: (v * v).sum()))
""",
)
add(
    "integrate_callbacks",
    "scipy",
    "from scipy import integrate\n",
    """
    grid = y * 1.0
    show(round(integrate.quad(lambda t: float((grid[:100] * t).sum()), 0.0, 1.0)[0], 6))
    sol = integrate.solve_ivp(lambda t, v: -v * grid[0], (0.0, 1.0), y[:3] * 1.0)
    show(np.round(sol.y[:, -1], 6), integrate.simpson(y, x=x), integrate.trapezoid(y, x))
    wide = integrate.solve_ivp(lambda t, v: (grid - v) * 1.0, (0.0, 0.1), x * 1.0, max_step=0.05)
    show(np.round(wide.y[:5, -1], 6))
""",
)
add(
    "linalg_solvers",
    "scipy",
    "from scipy import linalg\n",
    """
    a = y[:2500].reshape(50, 50) + np.eye(50) * 10.0
    w = y[:50] * 1.0
    show(linalg.solve(a, w), linalg.det(a), linalg.lu(a)[2])
    gesv, = linalg.get_lapack_funcs(("gesv",), (a, w))
    show(gesv(a, w)[2], linalg.get_blas_funcs("dot", (y, y))(y, y))
    show(linalg.cho_solve(linalg.cho_factor(a @ a.T), w))
""",
)
add(
    "linalg_operator",
    "scipy",
    "from scipy.sparse import linalg as sl\nfrom scipy import sparse\n",
    """
    d = y * 1.0
    op = sl.LinearOperator((n, n), matvec=lambda v: v.ravel() * d, dtype=float)
    s, info = sl.cg(op, y * 2.0)
    show(info, np.round(s, 4))
    m = sparse.diags(d)
    show(m @ y, (m * 2.0).diagonal(), sparse.csr_matrix((y, (np.arange(n), np.arange(n)))).sum())
""",
)
add(
    "sparse_parts",
    "scipy",
    "from scipy import sparse\n",
    """
    k = np.arange(n) % 50
    m = sparse.coo_matrix((y, (np.arange(n), k)), shape=(n, 50)).tocsr()
    show(m.T @ y, m.multiply(y[:, None]).sum(), m.dot(y[:50]), (m + m).data)
    show(m[k > 45].sum(), sparse.hstack([m, sparse.csr_matrix(y[:, None])]).shape)
""",
)
add(
    "spatial_trees",
    "scipy",
    "from scipy import spatial\n",
    """
    p = y[: n // 1000 * 100].reshape(-1, 2) * 1.0
    tree = spatial.cKDTree(p)
    d, i = tree.query(p[:100] + 0.001, k=2)
    show(d, i)
    out = np.zeros((50, 50))
    spatial.distance.cdist(p[:50], p[50:100], out=out)
    show(out, spatial.distance.pdist(p[:20]))
""",
)
add(
    "spatial_shapes",
    "scipy",
    "from scipy import spatial\n",
    """
    angle = x[:: n // 200] * 6.0
    q = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    h = spatial.ConvexHull(q)
    show(round(float(h.volume), 6), spatial.Delaunay(q).simplices.shape)
    show(spatial.transform.Rotation.from_euler("z", y[:3, np.newaxis]).as_quat())
""",
)
add(
    "stats_results",
    "scipy",
    "from scipy import stats\n",
    """
    show(*map(float, stats.ttest_ind(y, y * 1.01)), *map(float, stats.pearsonr(x, y)))
    r = stats.linregress(x, y)
    show(float(r.slope), float(r.intercept), float(stats.skew(y)), stats.zscore(y))
    show(*stats.describe(y)[:2], float(stats.norm.pdf(y).sum()))
""",
)
add(
    "special_functions",
    "scipy",
    "from scipy import special\n",
    """
    out = np.zeros(n)
    special.erf(y, out=out)
    show(out, special.gammaln(y), special.expit(y), float(special.logsumexp(y)))
    show(special.log_softmax(y), special.diric(y, 3))  # functions that are no ops of ours
""",
)
add(
    "interpolate_all",
    "scipy",
    "from scipy import interpolate\n",
    """
    f = interpolate.interp1d(x, y)
    c = interpolate.CubicSpline(x[:: n // 100], y[:: n // 100])
    show(f(x[:100]), c(x[:1000]), interpolate.make_interp_spline(x[:100], y[:100])(x[50:60]))
    g = interpolate.RegularGridInterpolator((np.arange(10.0), np.arange(10.0)),
        y[:100].reshape(10, 10))
    show(g(y[:4].reshape(2, 2)))
""",
)
add(
    "fft_workers",
    "scipy",
    "from scipy import fft\n",
    """
    show(np.abs(fft.fft(y)), fft.irfft(fft.rfft(y)), fft.dct(y))
    show(fft.fft2(y[:10000].reshape(100, 100)).real)
""",
)
add(
    "sklearn_linear",
    "sklearn",
    "from sklearn.linear_model import LinearRegression, SGDRegressor\n",
    """
    data = np.stack([x, x * x], axis=1)
    m = LinearRegression().fit(data, y)
    show(np.round(m.coef_, 6), m.predict(data), m.score(data, y))
    g = SGDRegressor(max_iter=3, tol=None, random_state=0).fit(data[:1000], y[:1000])
    show(np.round(g.coef_, 6))
""",
)
add(
    "sklearn_scale_and_cluster",
    "sklearn",
    """
    from sklearn.cluster import KMeans
    from sklearn.preprocessing import StandardScaler
    from sklearn.decomposition import PCA
""",
    """
    data = np.stack([x, y, y * y], axis=1)
    s = StandardScaler().fit_transform(data)
    k = KMeans(2, n_init=1, random_state=0).fit(s[:2000])
    show(s, np.bincount(k.labels_), np.abs(PCA(2).fit_transform(data)[:50]))
""",
)
add(
    "sklearn_trees",
    "sklearn",
    """
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import accuracy_score, roc_auc_score
    from sklearn.model_selection import train_test_split
    from sklearn.neighbors import KNeighborsRegressor
""",
    """
    label = (y > 4.0).astype(int)
    a, b, c, d = train_test_split(np.stack([y, x], axis=1), label, random_state=0)
    m = RandomForestClassifier(3, random_state=0).fit(a[:500], c[:500])
    show(accuracy_score(d[:500], m.predict(b[:500])), roc_auc_score(label, y))
    show(KNeighborsRegressor(2).fit(a[:500], c[:500]).predict(b[:10]))
""",
)
add(
    "sklearn_pipeline",
    "sklearn",
    """
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.pipeline import make_pipeline
    from sklearn.linear_model import Ridge
    from sklearn.preprocessing import FunctionTransformer
    class Center(TransformerMixin, BaseEstimator):
        def fit(self, data, target=None):
            self.mean_ = np.mean(data, axis=0)
            self.kept_ = np.ones(len(data)) * 2.0
            return self
        def transform(self, data):
            return data - self.mean_
""",
    """
    data = np.stack([x, y], axis=1)
    m = make_pipeline(Center(), FunctionTransformer(lambda d: np.ones(d.shape) * d), Ridge())
    show(m.fit(data, y).predict(data), m[0].kept_.sum())
""",
)
add(
    "skimage_filters",
    "skimage",
    "from skimage import filters, measure, morphology, transform\n",
    """
    image = (np.sin(y * 40.0) + 1.0).reshape(-1, 100)[:200] / 2.0
    show(filters.gaussian(image), filters.sobel(image), float(filters.threshold_otsu(image)))
    show(measure.label(image > 0.5), morphology.dilation(image), transform.resize(image, (20, 20)))
    show(len(measure.regionprops(measure.label(image > 0.5))))
""",
)
add(
    "skimage_restoration",
    "skimage",
    "from skimage import exposure, restoration, segmentation, util\n",
    """
    show(exposure.rescale_intensity(y))
    image = (y[:10000].reshape(100, 100) - 3.0) * 40.0
    image = image / image.max()
    show(restoration.denoise_tv_chambolle(image), exposure.equalize_hist(image),
        util.img_as_ubyte(image))
    show(segmentation.slic(image, n_segments=5, channel_axis=None))
""",
)
add(
    "matplotlib_lines",
    "matplotlib",
    """
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
""",
    """
    fig, ax = plt.subplots()
    line, = ax.plot(x, y)
    ax.scatter(x[:50], y[:50], c=y[:50])
    counts, edges, _ = ax.hist(y, bins=5)
    shown = ax.imshow(y[:10000].reshape(100, 100))
    ax.fill_between(x[:100], y[:100])
    fig.canvas.draw()
    show(line.get_ydata(), counts, edges, shown.get_array().shape)
    line.set_ydata(y * 2.0)
    show(line.get_ydata(), np.asarray(fig.canvas.buffer_rgba()).shape)
    plt.close(fig)
""",
)
add(
    "xarray_arrays",
    "xarray",
    "import xarray as xr\n",
    """
    a = xr.DataArray(y, dims="t", coords={"t": x})
    show(float(a.mean()), float((a + y).sum()), a.sel(t=slice(0.0, 0.5)).values)
    ds = xr.Dataset({"a": ("t", y)}, coords={"t": x})
    ds["b"] = ("t", y * 2.0)
    show(ds["b"].values, float(ds["a"].interp(t=0.25)), a.rolling(t=3).mean().values)
    a[0] = 9.0
    show(float(a[0]), float(y[0]))
    show(xr.apply_ufunc(lambda v: np.ones(v.shape) * v, a).values)
""",
)
add(
    "numba_functions",
    "numba",
    """
    import numba
    @numba.njit
    def total(v):
        s = 0.0
        for i in range(v.size):
            s += v[i]
        return s
    @numba.njit
    def scale(v, by):
        for i in range(v.size):
            v[i] *= by
    @numba.vectorize
    def plus(a, b):
        return a + b
    def plain(v):
        return v[0] + v[-1]
""",
    """
    show(total(y))
    scale(y, 2.0)
    show(total(y), y)
    show(plus(y, 1.0), numba.njit(plain)(y), numba.njit(lambda v: v * 2.0)(y))
    z = y * 3.0
    scale(z, 0.5)
    show(z + y)
""",
)
add(
    "torch_memory",
    "torch",
    "import torch\n",
    """
    t = torch.from_numpy(y)
    t *= 2.0
    show(y, float(t.sum()))
    u = torch.asarray(y)
    v = torch.tensor(y)
    w = torch.as_tensor(y * 1.0)
    y[0] = 100.0
    show(float(u[0]), float(v[0]), float(w.sum()), str(u.dtype))
    show(np.add(y, t.numpy()), torch.sin(torch.from_numpy(y + 1.0)).numpy())
""",
)
add(
    "torch_operators",
    "torch",
    "import torch\n",
    """
    t = torch.ones(n, dtype=torch.float64)
    show(np.add(y, t).sum().item(), type(np.add(y, t)).__name__)
    t[:3] = torch.from_numpy(y[:3] * 1.0)
    show(float(t.sum()), float(torch.dot(t, torch.from_numpy(y))))
    show(torch.stack([torch.from_numpy(a) for a in (y, y * 2.0)]).shape)
""",
)
add(
    "torch_dataset",
    "torch",
    """
    import torch
    from torch.utils.data import DataLoader, Dataset
    class Rows(Dataset):
        def __init__(self, data):
            self.data = data
        def __len__(self):
            return 3
        def __getitem__(self, i):
            return np.ones(len(self.data)) * self.data * i
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.kept = np.ones(5)
        def forward(self, v):
            return torch.from_numpy(v) * 2.0
""",
    """
    for batch in DataLoader(Rows(y), batch_size=3):
        show(tuple(batch.shape), float(batch.sum()))
    show(float(Net()(y).sum()))
""",
)
add(
    "jax_calls",
    "jax",
    """
    import jax
    import jax.numpy as jnp
    jax.config.update("jax_enable_x64", True)
""",
    """
    show(np.asarray(jnp.sin(y)), float(jax.jit(lambda v: (v * 2.0).sum())(y)))
    a = jnp.asarray(y)
    show(float((a + y).sum()), float(jnp.dot(y, y)),
        float(jax.grad(lambda v: (v * v).sum())(y).sum()))
    show(np.asarray(jax.vmap(lambda v: v + 1.0)(y)), float(a.at[0].set(y[1])[0]))
""",
)
add(
    "jax_callback",
    "jax",
    """
    import jax
    import jax.numpy as jnp
    jax.config.update("jax_enable_x64", True)
    def host(v):
        return np.ones(v.shape) * np.asarray(v)
""",
    """
    out = jax.pure_callback(host, jax.ShapeDtypeStruct((n,), jnp.float64), y)
    show(np.asarray(out), float(jnp.stack([y, y * 2.0]).sum()))
    tree = jax.tree_util.tree_map(jnp.asarray, {"a": y, "b": [y, x]})
    show(float(tree["a"].sum()), float(tree["b"][1].sum()))
""",
)
add(
    "h5py_files",
    "h5py",
    "import h5py, os, tempfile\n",
    """
    path = os.path.join(tempfile.mkdtemp(), "a.h5")
    with h5py.File(path, "w") as f:
        f["a"] = y
        d = f.create_dataset("b", (n,), "f8")
        d[...] = y * 2.0
        d[:3] = y[:3] * 5.0
        f.create_dataset("c", data=y.reshape(-1, 10))
        f["a"].attrs["w"] = y[:5]
        d.write_direct(y)
    out = np.zeros(n)
    with h5py.File(path) as f:
        f["a"].read_direct(out)
        show(out, f["b"][...], f["c"][2], f["a"].attrs["w"])
    show(out * 2.0)
""",
)
add(
    "zarr_stores",
    "zarr",
    "import zarr\n",
    """
    z = zarr.zeros((n,), dtype="f8", chunks=(max(n // 4, 1),))
    z[:] = y
    z[:5] = y[:5] * 3.0
    show(np.asarray(z[:]), float(z[3]))
    show(zarr.array(y * 2.0)[:])
""",
)
add(
    "polars_frames",
    "polars",
    "import polars as pl\n",
    """
    s = pl.Series("a", y)
    df = pl.DataFrame({"a": y, "b": y * 2.0})
    show(float(s.sum()), float(df["b"].sum()), df.schema["b"] == pl.Float64)
    show(df.with_columns(pl.Series("c", y + 1.0))["c"].to_numpy(),
        pl.from_numpy(y.reshape(-1, 10)).shape)
    show(float(df.filter(pl.Series(y > 4.0))["a"].sum()),
        df.select(pl.col("a").map_batches(lambda v: v * 2.0))["a"].sum())
""",
)
add(
    "pillow_images",
    "PIL",
    "from PIL import Image\n",
    """
    image = ((y[:10000] - 3.0) * 100.0).astype(np.uint8).reshape(100, 100)
    i = Image.fromarray(image)
    show(i.size,
        sum(i.getdata()) if not hasattr(i, "get_flattened_data") else sum(i.get_flattened_data()))
    big = Image.fromarray(((y - 3.0) * 100.0).astype(np.uint8).reshape(-1, 100))
    show(big.size, np.asarray(big.resize((10, 10))))
    show(np.asarray(Image.fromarray((y * 10.0).astype(np.float32).reshape(-1, 100))) * 2.0)
""",
)
add(
    "joblib_parallel",
    "joblib",
    """
    from joblib import Parallel, delayed, hash as joblib_hash
    def work(a, i):
        return float((a * i).sum())
""",
    """
    show(Parallel(2, prefer="threads")(delayed(work)(y, i) for i in range(3)))
    show(Parallel(1)(delayed(np.sum)(y * i) for i in range(2)),
        joblib_hash(y[:100]) == joblib_hash(y[:100].copy()))
""",
)
add(
    "joblib_processes",
    "joblib",
    """
    import joblib
    from joblib import Parallel, delayed
    def work(a, i):
        return float((a * i).sum())
""",
    """
    show(Parallel(2)(delayed(work)(y, i) for i in range(2)))
    w = y * 1.0
    show(Parallel(2)(delayed(lambda i: float((w * i).sum()))(i) for i in range(2)))
""",
)
add(
    "joblib_memory",
    "joblib",
    """
    import os, tempfile
    import joblib
""",
    """
    path = os.path.join(tempfile.mkdtemp(), "a.joblib")
    joblib.dump({"y": y, "l": [y, 3]}, path)
    show(joblib.load(path)["y"], joblib.load(path, mmap_mode="r")["l"][0])
    memory = joblib.Memory(tempfile.mkdtemp(), verbose=0)
    show(memory.cache(np.cumsum)(y), memory.cache(np.cumsum)(y))
""",
)
add(
    "dask_arrays",
    "dask",
    "import dask\nimport dask.array as da\n",
    """
    a = da.from_array(y, chunks=max(n // 4, 1))
    show(float((a + y).sum().compute()), a.map_blocks(lambda b: np.ones(b.shape) * b).compute())
    show(dask.delayed(np.sum)(y * 2.0).compute(), da.stack([a, a]).mean(axis=0).compute())
""",
)
add(
    "numexpr_calls",
    "numexpr",
    "import numexpr as ne\n",
    """
    out = y * 0.0
    ne.evaluate("y * 2 + x", out=out)
    show(out, ne.evaluate("sin(y)"), ne.evaluate("a + b", {"a": y, "b": x}))
    show(out * 2.0)
""",
)
add(
    "networks",
    "networkx",
    "import networkx as nx\n",
    """
    g = nx.from_numpy_array((y[:400] > 3.001).astype(int).reshape(20, 20))
    show(g.number_of_edges(), nx.to_numpy_array(g))
    nx.set_node_attributes(g, dict(enumerate(y[:20])), "w")
    show(float(g.nodes[3]["w"]))
""",
)
add(
    "through_partial",
    "scipy",
    """
    from functools import partial, reduce
    from operator import methodcaller
    from scipy.ndimage import gaussian_filter1d, uniform_filter1d
    import pandas as pd
""",
    """
    f = partial(gaussian_filter1d, sigma=2.0)
    g = partial(uniform_filter1d, y, 3)
    show(f(y), g(), f.func is gaussian_filter1d)
    show(*map(f, [y, y * 2.0]), *map(uniform_filter1d, (y * i for i in range(2)), [3, 5]))
    show(float(methodcaller("sum")(pd.Series(y))),
        len(list(filter(pd.api.types.is_list_like, [y, x, 3]))))
    show(reduce(np.add, [y, x, y]))
""",
)
add(
    "through_threads",
    "scipy",
    """
    from concurrent.futures import ThreadPoolExecutor
    from threading import Thread
    from scipy.ndimage import gaussian_filter1d
""",
    """
    with ThreadPoolExecutor(2) as pool:
        show(pool.submit(gaussian_filter1d, y, 2.0).result())
        show(*pool.map(gaussian_filter1d, [y, y * 2.0], [1.0, 2.0]))
        show(pool.submit(lambda a: float((np.ones(n) * a).sum()), y).result())
    out = np.zeros(n)
    t = Thread(target=gaussian_filter1d, args=(y, 2.0), kwargs={"output": out})
    t.start()
    t.join()
    show(out * 1.0)
""",
)
add(
    "objects_with_arrays",
    "pandas sklearn",
    """
    from dataclasses import dataclass
    import pandas as pd
    from sklearn.utils import shuffle, check_array
    @dataclass
    class Pair:
        a: object
        b: object
    class Own:
        def __init__(self, v):
            self.v = v
        def __array__(self, dtype=None, copy=None):
            return np.asarray(self.v * 2.0)
""",
    """
    pair = Pair(y, [x, y])
    df = pd.DataFrame([pair.a[:3], pair.b[1][:3]])
    show(df.to_numpy(), pair.a is y, pair.b[0] is x)
    kept = {"a": y, "b": x}
    frame = pd.DataFrame(kept)
    show(float(frame["a"].sum()), kept["a"] is y, sorted(kept))
    show(pd.DataFrame(Pair(y, x).__dict__).shape, check_array(Own(y), ensure_2d=False))
    show(*shuffle(y, x, random_state=0)[:1])
    items = [y, x]
    show(np.asarray(pd.concat([pd.Series(i) for i in items])), items[0] is y)
""",
)
add(
    "generators_and_returns",
    "pandas scipy",
    """
    import pandas as pd
    from scipy import sparse
    def rows(v):
        for i in range(3):
            yield np.ones(len(v)) * v * i
    class Model:
        def __call__(self, v):
            return np.zeros(len(v)) + v
        @property
        def shape(self):
            return (3, 3)
""",
    """
    w = y[:500] * 2.0
    show(pd.DataFrame(rows(w)).shape, float(pd.DataFrame(rows(w)).to_numpy().sum()))
    show(float(pd.Series(y).pipe(Model()).sum()),
        pd.DataFrame({"a": y}).transform(lambda c: np.ones(n) * 2.0).shape)
    show(sparse.vstack([sparse.csr_matrix(r) for r in rows(y[:100])]).sum())
    show([float(a.sum()) for a in rows(y)])
""",
)
add(
    "flags_and_identity",
    "scipy",
    """
    from scipy.ndimage import gaussian_filter1d
    from scipy.linalg import blas
""",
    """
    out = np.zeros(n)
    back = gaussian_filter1d(y, 2.0, output=out)
    show(back is out if back is not None else "none", out.flags.owndata, out.flags.writeable)
    blas.dscal(2.0, y)
    z = np.asfortranarray(y.reshape(-1, 10) * 1.0)
    show(y, blas.dgemv(1.0, z, y[:10]), z.flags.fortran, y.flags.num)
    r = np.broadcast_to(y[:10] * 2.0, (n // 10, 10))
    show(gaussian_filter1d(r, 1.0), r.flags.writeable)
""",
)
add(
    "numpy_testing",
    "scipy",
    """
    from numpy import testing
    import ctypes
    from numpy.ctypeslib import ndpointer, as_ctypes
    import scipy
""",
    """
    testing.assert_equal(y, y.copy())
    testing.assert_allclose(y * 2.0, y + y)
    try:
        testing.assert_array_equal(y, y + 1.0)
    except AssertionError as error:
        print(str(error).splitlines()[3])
    p = ndpointer(np.float64, flags="C")
    show(p.from_param(y) is not None, as_ctypes(y)[3],
        y.ctypes.data_as(ctypes.POINTER(ctypes.c_double))[2])
""",
)
add(
    "errors_at_the_line",
    "scipy pandas",
    """
    import traceback
    import pandas as pd
    from scipy import linalg, optimize
    def bad(v):
        raise KeyError("mine")
""",
    """
    for call in (
        lambda: linalg.solve(y[:4].reshape(2, 2), y[:3] * 1.0),
        lambda: pd.DataFrame({"a": y, "b": y[:-1] * 2.0}),
        lambda: optimize.minimize(bad, y[:2] * 1.0),
        lambda: y.nothing_of_the_kind,
    ):
        try:
            call()
        except Exception as error:
            shown = traceback.extract_tb(error.__traceback__)
            print(type(error).__name__, [f.name for f in shown if "alight" in f.filename],
                len(shown) > 1)
""",
)
add(
    "nested_calls",
    "scipy pandas",
    """
    import pandas as pd
    from scipy.ndimage import gaussian_filter1d as smooth
    def clean(v, by=smooth, *, sigma=1.0, **more):
        return by(v, sigma, **more)
    class Chain:
        def __init__(self, v):
            self.v = v
        def then(self, f, *args, **named):
            return Chain(f(self.v, *args, **named))
""",
    """
    show(clean(clean(y, sigma=2.0), mode="nearest"),
        smooth(smooth(y, 1.0), *[2.0], **{"mode": "wrap"}))
    show(Chain(y).then(smooth, 1.0).then(np.sqrt).then(lambda a: a * 2.0).then(smooth, sigma=1.0).v)
    show(sorted([y[:3] * 1.0, y[3:6] * 2.0], key=lambda a: -float(pd.Series(a).sum()))[0])
    show(max([y, y * 2.0], key=lambda a: pd.Series(a).max()).max(),
        [smooth(v, 1.0).sum() for v in (y, x)][1])
""",
)
add(
    "executed_text",
    "scipy",
    """
    import scipy.signal
    names = {}
    exec("import numpy as np, scipy.ndimage as nd\\ndef f(v): return nd.uniform_filter1d(v, 3)",
        names)
""",
    """
    show(names["f"](y), eval("scipy.signal.medfilt(y[:1000], 3)", {"scipy": scipy, "y": y}))
""",
)
add(
    "masked_and_subclasses",
    "pandas",
    """
    import pandas as pd
    class Tagged(np.ndarray):
        pass
""",
    """
    show(pd.Series(y).sum())
    m = np.ma.masked_array(y, y > 4.0)
    show(float(m.mean()), pd.Series(m).isna().sum(), float((y.view(Tagged) * 2.0).sum()))
    show(pd.Series(y.view(Tagged)).sum())
""",
)
add(
    "dates_and_text",
    "pandas",
    "import pandas as pd\n",
    """
    t = pd.to_datetime((y * 1e9).astype("int64"))
    show(t[0].year, float(pd.to_timedelta(y, unit="s").total_seconds().to_numpy().sum()))
    show(pd.Series(y[:5]).map(lambda v: "%.3f" % v).tolist(),
        pd.get_dummies((y * 2.0).astype(int)).shape)
""",
)
add(
    "random_generators",
    "scipy",
    "from scipy import stats\n",
    """
    rng = np.random.default_rng(0)
    noise = rng.normal(size=n)
    show(stats.norm.rvs(size=5, random_state=rng), noise * y, rng.permutation(y))
    rng.shuffle(y)
    show(stats.rankdata(y), stats.mode((y * 2.0).astype(int)).mode)
""",
)
add(
    "json_and_others",
    "pandas",
    """
    import json, hashlib, struct, io
    import pandas as pd
""",
    """
    show(json.dumps({"m": float(y.mean()) > 0, "n": int(y.argmax())}),
        hashlib.sha256(np.round(y, 3)).hexdigest()[:8])
    s = io.BytesIO()
    np.save(s, y)
    s.seek(0)
    show(np.load(s), pd.Series(y).to_json()[:10], struct.pack("d", y[2]).hex())
    show(pd.DataFrame(y.reshape(-1, 10)).to_csv(index=False).count(","))
""",
)
