"""Programs that do a whole piece of work with scikit-learn, scikit-image, Matplotlib, xarray,
PyTorch, JAX, Numba, h5py, zarr, Polars, Pillow or Dask: arrays go there, come back and go again."""

from __future__ import annotations

from .border_programs import add

__all__: list[str] = []

add(
    "sklearn_scorers_of_the_program",
    "sklearn",
    """
    from sklearn.inspection import permutation_importance
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import cross_val_score, cross_validate
    def closeness(model, data, target):
        gap = model.predict(data) - target
        return float(1.0 / (1.0 + np.sqrt((gap * gap).mean())) + (np.ones(4) * 2.0).sum())
""",
    """
    step = n // 600
    d, t = np.stack([x, np.sin(y), y * x], axis=1)[::step], (y * y)[::step]
    show(np.round(cross_val_score(Ridge(), d, t, cv=3, scoring=closeness), 6))
    r = cross_validate(Ridge(), d, t, cv=3, scoring={"own": closeness, "r2": "r2"},
        return_train_score=True,
        params={"sample_weight": t})
    show(np.round(r["test_own"], 6), np.round(r["train_r2"] * y[:3], 6))
    show(np.round(permutation_importance(Ridge().fit(d, t), d, t, scoring=closeness, n_repeats=2,
        random_state=0).importances_mean, 6))
""",
)
add(
    "sklearn_columns_and_back",
    "sklearn pandas",
    """
    import pandas as pd
    from sklearn.compose import ColumnTransformer, TransformedTargetRegressor
    from sklearn.decomposition import PCA
    from sklearn.linear_model import LinearRegression
    from sklearn.pipeline import FeatureUnion, Pipeline
    from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, StandardScaler
""",
    """
    f = pd.DataFrame({"a": y, "b": x * y, "c": np.cos(x * 9.0)})
    c = ColumnTransformer([("s", StandardScaler(), ["a", "b"]), ("f", FunctionTransformer(np.sqrt),
        ["a"])], remainder="passthrough")
    m = Pipeline([("c", c), ("u", FeatureUnion([("p", PCA(2)), ("k", KBinsDiscretizer(3,
        encode="ordinal"))])), ("l", LinearRegression())])
    show(np.round(m.fit(f, y).predict(f), 6), np.round(m.set_params(u="passthrough").fit(f,
        x * y).score(f, x * y), 6))
    p = PCA(2).fit(np.stack([x, y, np.sin(x * 5.0)], axis=1))
    show(p.inverse_transform(p.transform(np.stack([y, x, y], axis=1))) * y[:, None],
        p.explained_variance_)
    t = TransformedTargetRegressor(LinearRegression(), func=np.log,
        inverse_func=lambda v: np.exp(v) * 1.0)
    show(t.fit(x[:, None], y).predict(x[:9, None]))
""",
)
add(
    "sklearn_starts_and_splits",
    "sklearn",
    """
    from sklearn.cluster import KMeans, MiniBatchKMeans
    from sklearn.gaussian_process import GaussianProcessRegressor, kernels
    from sklearn.model_selection import PredefinedSplit, StratifiedKFold, train_test_split
    from sklearn.tree import DecisionTreeRegressor
""",
    """
    d, label = np.stack([y, np.sin(x * 9.0)], axis=1)[:3000], (x[:3000] * 3e5).astype(int) % 3
    k = KMeans(2, init=d[[0, -1]] * 1.0, n_init=1).fit(d, sample_weight=y[:3000])
    show(np.round(k.cluster_centers_ * y[:2], 6), np.bincount(k.predict(d * 1.0)),
        np.round(k.transform(d), 5))
    a, b, i, j = train_test_split(d, np.arange(3000), stratify=label, random_state=3)
    show(a, y[j] * 2.0, label[i], [int(label[q].sum()) for _, q in StratifiedKFold(3).split(d,
        label)])
    tree = DecisionTreeRegressor(max_depth=3, random_state=0)
    show(PredefinedSplit(label).get_n_splits(), tree.fit(a, y[i]).predict(b))
    g = GaussianProcessRegressor(kernels.RBF(y[0]), alpha=y[:30] * 0.01, optimizer=None).fit(d[:30],
        y[:30])
    show(np.round(g.predict(d[:5], return_std=True), 5), np.round(MiniBatchKMeans(2, random_state=0,
        n_init=1).partial_fit(d[:99]).cluster_centers_.sum() * y[3], 5))
""",
)
add(
    "skimage_regions",
    "skimage",
    """
    from skimage import filters, measure, segmentation
    def spread(region, image):
        return float((image[region] * np.ones(int(region.sum()))).std())
""",
    """
    z = (np.sin(y[:10000] * 90.0) + np.cos(x[:10000] * 40.0)).reshape(100, 100)
    z = (z - z.min()) / np.ptp(z)
    lab = measure.label(z > filters.threshold_local(z, 21) * y[0] / 3.0)
    t = measure.regionprops_table(lab, z * 2.0, ("area", "centroid", "mean_intensity"),
        extra_properties=(spread,))
    show(t["area"] * y[0], t["centroid-1"], t["mean_intensity"], t["spread"],
        filters.threshold_multiotsu(z))
    show(segmentation.watershed(-z, lab * (z > 0.8)), measure.profile_line(z, (0, 0), (99, 50)),
        filters.farid(z))
    m, keep = measure.ransac(np.stack([x[:200], y[:200]], axis=1), measure.LineModelND, 2, 1e-4,
        rng=1)
    show(keep.sum(), np.round(np.abs(m.predict_y(x[:5])), 6))
""",
)
add(
    "matplotlib_fields",
    "matplotlib",
    """
    import io, zlib
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.path import Path
    from matplotlib.transforms import Affine2D
""",
    """
    z, k = (np.sin(y[:2500] * 500.0)).reshape(50, 50), np.arange(50.0)
    fig, ax = plt.subplots(2, 2, figsize=(3, 3))
    ax[0, 0].imshow(z * 0.5, vmin=z.min(), vmax=z.max(), extent=(0, 1, 0, 1))
    c = ax[0, 1].contourf(k, k, z * y[0], levels=np.linspace(-3.0, 3.0, 5) * y[0] / 3.0)
    ax[1, 0].quiver(k[::9], k[::9], z[::9, ::9], z.T[::9, ::9], np.hypot(z, z.T)[::9, ::9])
    ax[1, 1].streamplot(k, k, z + 2.0, z * 0.5 + 1.0, density=0.3, linewidth=1.0 + np.abs(z))
    fig.canvas.draw()
    show(np.asarray(fig.canvas.buffer_rgba()), zlib.crc32(fig.canvas.buffer_rgba()), c.levels * 2.0)
    p = Path(np.stack([np.cos(x[:9] * 1e4), np.sin(y[:9] * 1e4)], axis=1))
    show(p.contains_points(y[:50].reshape(25, 2) - 3.0),
        Affine2D().scale(y[0]).transform(p.vertices * x[:9, None]))
    plt.close(fig)
""",
)
add(
    "xarray_sets_and_groups",
    "xarray",
    "import xarray as xr\n",
    """
    ds = xr.Dataset({"a": ("t", y), "b": ("t", y * x)}, coords={"t": x, "k": ("t",
        np.arange(n) % 3)})
    ds = (ds * 2.0 + ds.a).assign(c=lambda d: d.a - d.b * y)
    show(ds.c.values * y, ds.groupby("k").mean().b.values, ds.a.groupby_bins("t",
        x[:: n // 4] * 1.0).sum().values)
    show((ds.groupby("k") - ds.groupby("k").mean()).b.values + y, ds.coarsen(t=10).max().a.values)
    show(ds.a.where(y > 4.0, other=0.0).values, xr.concat([ds.a, ds.b * y], "v").std("v").values)
    show(ds.groupby("k").map(lambda g: g / np.sqrt(g.a.values).sum()).a.values, ds.a.polyfit("t",
        1).polyfit_coefficients.values)
    show(ds.a.differentiate("t").values, ds.to_dataframe()["c"].to_numpy() - y, xr.dot(ds.a,
        ds.b).item())
""",
)
add(
    "torch_functions_of_the_program",
    "torch",
    """
    import torch
    class Cube(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            ctx.kept = v.detach().numpy()
            return torch.from_numpy(ctx.kept ** 3 * np.ones(len(ctx.kept)))
        @staticmethod
        def backward(ctx, g):
            return g * torch.from_numpy(3.0 * ctx.kept * ctx.kept)
""",
    """
    v = torch.tensor(y, requires_grad=True)
    (Cube.apply(v) * torch.from_numpy(x)).sum().backward()
    show(v.grad.numpy() * y, np.from_dlpack(torch.from_dlpack(y * 1.0)) + x)
    w = torch.nn.Parameter(torch.from_numpy(y[:3] * 1.0))
    step = torch.optim.SGD([w], lr=0.1)
    for k in range(3):
        step.zero_grad()
        ((w - torch.as_tensor(x[k : k + 3] * y[0])) ** 2).sum().backward()
        step.step()
    show(w.detach().numpy() * y[:3],
        torch.utils.data.TensorDataset(torch.from_numpy(y))[3][0].item())
""",
)
add(
    "jax_loops_and_trees",
    "jax",
    """
    import jax, jax.numpy as jnp
    jax.config.update("jax_enable_x64", True)
    @jax.jit
    def walk(start, steps):
        return jax.lax.scan(lambda c, s: (c * 0.9 + s, c), start, steps)
""",
    """
    last, seen = walk(y[:4] * 1.0, y[:400].reshape(100, 4))
    show(np.asarray(last) * y[:4], np.asarray(seen), np.from_dlpack(jnp.asarray(y)) + x)
    loss = lambda p: ((p["w"] * x + p["b"] - y) ** 2).mean()
    value, slope = jax.value_and_grad(loss)({"w": jnp.float64(1.0), "b": jnp.float64(y[0])})
    show(float(value), float(slope["w"]), float(np.float64(slope["b"]) * y[1]))
    show(np.asarray(jax.jacfwd(lambda v: v * y[:3])(y[3:6])), np.asarray(jax.ops.segment_sum(y,
        np.arange(n) % 5)))
""",
)
add(
    "numba_kinds_of_function",
    "numba",
    """
    import numba
    @numba.guvectorize(["(f8[:], f8[:], f8[:])"], "(n),(n)->(n)")
    def blend(a, b, out):
        for i in range(a.size):
            out[i] = a[i] * 0.25 + b[i]
    @numba.stencil
    def around(a):
        return a[-1] + a[1]
    @numba.njit(parallel=True)
    def rows(a, out):
        for i in numba.prange(a.shape[0]):
            out[i] = a[i].sum()
""",
    """
    out, sums = np.zeros(n), np.zeros(n // 10)
    show(blend(y, x) * 2.0, blend(y.reshape(-1, 10), x[:10]), blend(y, x, out) is out, around(y))
    rows((y * x).reshape(-1, 10), sums)
    show(out + y, np.sqrt(sums), numba.njit(lambda t: t[0] + t[1][::-1])((y, x)),
        numba.typed.List([y, x])[1] + y)
    y[::2] *= 3.0
    show(around(y) - x, numba.njit(lambda d, m: d[m].sum())(y, y > 8.0))
""",
)
add(
    "files_of_chunks",
    "h5py zarr",
    "import h5py, io, tempfile, zarr\n",
    """
    k = np.zeros(n // 100, dtype=[("v", "f8"), ("i", "i4")])
    k["v"], k["i"] = y[::100] * 2.0, np.arange(n // 100)
    with h5py.File(io.BytesIO(), "w") as f:
        d = f.create_dataset("d", (10, n // 10), "f4", maxshape=(None, n // 10), compression="gzip",
            fillvalue=y[0])
        d[2:4] = (y * x).reshape(10, -1)[2:4]
        d.resize(12, axis=0)
        d[11, y[: n // 10] > y[9]] = 1.0
        f["k"], f.attrs["m"] = k, y[:3].max()
        show(d[...] * y[0], f["k"]["v"] + y[::100], f["k"][k["v"] > 8.0]["i"], f.attrs["m"], d[:,
            [1, 5, 9]])
    g = zarr.open_group(tempfile.mkdtemp(), mode="w")
    a = g.create_array("a", data=(y * 3.0).reshape(100, -1), chunks=(30, n // 100))
    a[5:50:9] = (x * y).reshape(100, -1)[5:50:9]
    a.set_mask_selection(a[:] > 12.0, 0.0)
    show(a[:] * 2.0, a.oindex[[1, 7], :5], a.vindex[np.arange(9), np.arange(9)] + y[:9])
""",
)
add(
    "polars_joins_and_groups",
    "polars",
    "import polars as pl\n",
    """
    df = pl.DataFrame({"k": np.arange(n) % 4, "y": y, "z": y * x})
    g = df.group_by("k").agg(pl.col("y").sum(),
        (pl.col("z") * pl.lit(y[0])).max().alias("m")).sort("k")
    show(g["y"].to_numpy() * y[:4], g["m"].to_numpy(), df.join(g,
        on="k").select(pl.col("m").sum()).item())
    show(df.with_columns(w=pl.lit(pl.Series(y * 2.0)) - pl.col("z"))["w"].to_numpy() + x, df[["y",
        "z"]].to_numpy() @ y[:2])
    show(df.select(pl.when(pl.Series(y > 4.0)).then(pl.col("y")).otherwise(0.0)).to_series(
        ).to_numpy())
    show(np.sqrt(df["y"]).to_numpy() - y, df.group_by("k").map_groups(lambda t: t.head(2)).height,
        df["y"].is_in(y[:9]).sum())
""",
)
add(
    "pillow_and_dask_blocks",
    "PIL dask",
    """
    import io
    import dask.array as da
    from PIL import Image, ImageFilter
""",
    """
    z = (np.sin(y[:10000] * 80.0) * 100.0 + 120.0).reshape(100, 100)
    i = Image.fromarray(np.stack([z, z * 0.5, 255.0 - z], axis=-1).astype(np.uint8))
    file = io.BytesIO()
    i.filter(ImageFilter.Kernel((3, 3), (y[:9] * 2.0).tolist())).save(file, "PNG")
    back = np.asarray(Image.open(io.BytesIO(file.getvalue()))) * z[:, :, None]
    show(back, np.asarray(i.convert("L").crop((5, 5, 50, 60)).rotate(float(y[0]) * 9.0)) + y[:45])
    d = da.blockwise(lambda a, b: a * b + np.ones(a.shape), "ij", da.from_array(back[..., 0],
        chunks=30), "ij", da.from_array(z, chunks=30), "ij", dtype=float)
    def part(a, axis, keepdims):
        return np.sum(a * 2.0, axis, keepdims=keepdims)
    show(d.compute() * 0.5, da.reduction(d, part, part, axis=0, dtype=float).compute() / y[:100])
    show(da.apply_gufunc(lambda a, w: (a * w).sum(axis=-1), "(i),(i)->()", d.rechunk((50, 100)),
        y[:100]).compute(), da.linalg.svd(da.from_array(z, chunks=(50, 100)))[1].compute())
""",
)
