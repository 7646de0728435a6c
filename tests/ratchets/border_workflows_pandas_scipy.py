"""Programs that do a whole piece of work with pandas or SciPy: arrays go there, come back, are
computed on, and go there again, as data, bounds, states, starts and what callbacks close over."""

from __future__ import annotations

from .border_programs import add

__all__: list[str] = []

add(
    "pandas_levels",
    "pandas",
    "import pandas as pd\n",
    """
    i = pd.MultiIndex.from_arrays([np.arange(n) % 4, (y * 2.0).astype(int)], names=["a", "b"])
    s = pd.Series(y * x, index=i)
    show(s.groupby(level=["a", "b"]).sum().unstack("a").to_numpy(), float(s.xs(6, level="b").sum()))
    t = pd.DataFrame({"v": y}, index=i).groupby(level=0)["v"].agg(["min", "max"])
    show(t.to_numpy() * y[:2], float(s.sort_index().loc[(1, slice(7, 9))].sum()),
        s.swaplevel().index.nlevels)
    show(pd.MultiIndex.from_product([y[:3], x[:2]]).to_frame().to_numpy().astype(float) + 1.0)
""",
)
add(
    "pandas_names_in_queries",
    "pandas",
    "import pandas as pd\n",
    """
    df, low = pd.DataFrame({"a": y * 2.0, "b": x}), y.mean()
    show(len(df.query("a > @low * 2")), len(df.query("a == @y * 2")), len(df.query("b in @x[:5]")))
    df["c"] = df.eval("a + @y")
    df.eval("d = c - @y * @low", inplace=True)
    show(df["c"].to_numpy(), float(df["d"].sum()), pd.eval("y + x")[5] - y[5],
        len(df[df.eval("a>@y.max()")]))
""",
)
add(
    "pandas_joins_on_arrays",
    "pandas",
    "import pandas as pd\n",
    """
    k = (x * 100.0).astype(int)
    a, b = pd.DataFrame({"v": y}), pd.DataFrame({"w": y[:101] * 2.0})
    m = a.merge(b, left_on=k, right_on=np.arange(101), how="left", indicator=True)
    show(m.shape, float(m["w"].sum()), m["_merge"].value_counts()["both"])
    c = pd.merge_asof(pd.DataFrame({"t": y, "i": k}), pd.DataFrame({"t": y[::50] * 1.0,
        "z": x[::50]}), on="t")
    show(float(c["z"].sum()), a.join(b, rsuffix="_").isna().sum().to_numpy(),
        c.reindex(k[:9]).shape)
""",
)
add(
    "pandas_holes_filled",
    "pandas scipy",
    "import pandas as pd\n",
    """
    s = pd.Series(y).mask((np.arange(n) % 7) > 2)
    show(s.interpolate().to_numpy() - y, s.interpolate("cubic").to_numpy()[:-7],
        s.fillna(pd.Series(x)).sum())
    v = pd.DataFrame({"a": y, "b": x}).to_numpy(copy=True)
    v[:, 0] *= x
    back = pd.DataFrame(v, columns=["a", "b"])
    show(back["a"].to_numpy() + y, float(back.ffill().shift(2).iloc[5].sum()),
        back.corr().to_numpy())
""",
)
add(
    "pandas_weighted_windows",
    "pandas",
    "import pandas as pd\n",
    """
    w, s = y[:5] / y[:5].sum(), pd.Series(y[:2000])
    show(s.rolling(5).apply(lambda v: (v * w).sum(), raw=True).to_numpy())
    show(s.expanding(3).apply(lambda v: np.sqrt(v[-1]), raw=True).sum(),
        s.ewm(alpha=y[0] / 9.0).mean().sum())
    g = s.groupby(np.arange(2000) % 3).rolling(4).max().to_numpy()
    show(g, s.rolling(5, center=True).agg({"m": "mean", "v": "var"}).to_numpy() * 1e3)
""",
)
add(
    "pandas_intervals",
    "pandas",
    "import pandas as pd\n",
    """
    edges = np.linspace(3.0, 5.5, 6) * (y[0] / 3.0)
    c = pd.cut(y, edges, include_lowest=True)
    b = pd.qcut(y, (y[:5] - y[0]) * 0.0 + np.linspace(0.0, 1.0, 5), retbins=True)[1]
    show(c.value_counts().to_numpy(), b, pd.Series(x).groupby(c, observed=True).mean().to_numpy())
    i = pd.IntervalIndex.from_arrays(edges[:-1], edges[1:], closed="left")
    show(i.get_indexer(y[:-1]), i.mid.to_numpy() * 2.0,
        pd.Series(y).value_counts(bins=4).to_numpy())
""",
)
add(
    "pandas_reshaped",
    "pandas",
    "import pandas as pd\n",
    """
    df = pd.DataFrame({"k": np.arange(n) % 3, "j": (x * 4.0).astype(int), "y": y, "z": y * x})
    p = df.pivot_table(index="k", columns="j", values=["y", "z"],
        aggfunc=lambda v: float((v * 2.0).sum()))
    show(p.to_numpy() - y[0], p.stack(future_stack=True).shape, float(df[:99].melt("k", ["y",
        "z"])["value"].sum()))
    e = pd.DataFrame({"c": [y[:3], y[3:5] * 2.0]}).explode("c")
    show(e["c"].astype(float).to_numpy(),
        pd.get_dummies((y * 2.0).astype(int)).to_numpy().sum(axis=0))
""",
)
add(
    "ndimage_warps",
    "scipy",
    "from scipy import ndimage as nd\n",
    """
    z = (y[:10000] * x[:10000]).reshape(100, 100)
    r, c = np.meshgrid(np.arange(100.0), np.arange(100.0), indexing="ij")
    out = np.zeros((100, 100))
    nd.map_coordinates(nd.spline_filter(z), [r + z, c * 0.9], output=out, prefilter=False,
        mode="nearest")
    show(out * 2.0, nd.map_coordinates(out, np.stack([r, c + np.sin(r)]), order=1), nd.shift(z,
        z[-1, :2]))
    show(nd.correlate1d(out, y[:3] * 0.1, output=out), nd.maximum_position(out), nd.histogram(z,
        0.0, 1.0, 4))
""",
)
add(
    "signal_in_pieces",
    "scipy",
    "from scipy import signal\n",
    """
    b, a = signal.cheby1(2, 1.0, 0.3)
    sos, out = signal.tf2sos(b, a), np.zeros(n)
    z, s = signal.lfiltic(b, a, y[:2]), signal.sosfilt_zi(sos) * y[0]
    for k in range(0, n, n // 4):
        out[k : k + n // 4], z = signal.lfilter(b * 1.0, a, y[k : k + n // 4], zi=z * 1.0)
        piece, s = signal.sosfilt(sos, y[k : k + n // 4] * 2.0, zi=s)
        show(piece, z, s)
    show(out - y, signal.filtfilt(b, a, out), signal.freqz(b, a, worN=y[:9] - 2.5)[1].real)
""",
)
add(
    "signal_peaks_and_spectra",
    "scipy",
    "from scipy import signal\n",
    """
    w = np.sin(x * 400.0) * y
    p, d = signal.find_peaks(w, height=y * 0.5, prominence=(0.1, None), distance=3)
    show(p, d["peak_heights"] / y[p], signal.peak_widths(w, p)[0], signal.peak_prominences(w, p)[0])
    # A coherence near zero is what rounding leaves.
    c = np.round(signal.coherence(w, y + w * w, nperseg=128)[1], 6)
    show(signal.argrelextrema(w, np.greater)[0], c)
    f = signal.ShortTimeFFT(signal.windows.hann(64) * y[0], hop=32, fs=1.0)
    show(np.abs(f.stft(w)), signal.welch(w, window=y[:64] * 1.0)[1], signal.csd(w, y)[1].imag)
""",
)
add(
    "optimize_fits",
    "scipy",
    "from scipy import optimize\n",
    """
    t, sigma = x[:: n // 500], 0.1 + x[:: n // 500]
    data = 2.0 * np.exp(-t * 1.5) + y[:: n // 500]
    base = y[:: n // 500] * 1.0
    def jac(t, a, b):
        return np.stack([np.exp(-t * b), -a * t * np.exp(-t * b)], axis=1)
    p, c = optimize.curve_fit(lambda t, a, b: a * np.exp(-t * b) + base, t, data, p0=y[:2],
        sigma=sigma, jac=jac, bounds=(y[:2] * 0.0, y[:2] * 9.0))
    r = optimize.least_squares(lambda v, d: (v * base[:2] - d) * 3.0, y[:2], args=(y[2:4] * 2.0,),
        loss="soft_l1", x_scale=y[:2] * 0.5, bounds=(y[:2] * 0.0, y[:2] * 5.0))
    show(np.round(p, 5), c.shape, np.round(r.x, 5), np.round(optimize.isotonic_regression(-t).x, 6))
""",
)
add(
    "interpolate_splines",
    "scipy",
    "from scipy import interpolate as ip\n",
    """
    k, v = x[:: n // 50] * 1.0, np.sin(y[:: n // 50] * 3.0)
    c = ip.CubicSpline(k, v, bc_type=((1, v[0]), (2, 0.0)))
    show(c(x) * y, c.integrate(x[1], x[-2]), c.roots(), c.antiderivative()(x[:9]), c.c * 0.001)
    show(ip.UnivariateSpline(k, v, w=1.0 + k, s=0.01)(x[:99]), ip.make_smoothing_spline(k, v,
        lam=1e-3)(k))
    s = ip.RectBivariateSpline(k[:10], k[10:20], y[:100].reshape(10, 10) * v[:10])
    show(s(k[:5], k[12:15]), s.ev(k[:4], k[11:15]), ip.Akima1DInterpolator(k, v)(x[3:9]))
    c.c[:] = c.c * 2.0
    show(c(k), ip.BSpline.design_matrix(x[40:60] * 10.0, np.arange(-3.0, 15.0), 3).sum())
""",
)
add(
    "sparse_from_buffers",
    "scipy",
    "import io\nfrom scipy import sparse\n",
    """
    ptr, idx = np.arange(0, n + 1, 10), np.arange(n) * 7 % 100
    m = sparse.csr_array((y, idx, ptr), shape=(n // 10, 100))
    m.data *= x
    m.data[m.data > 4.0] = 0.0
    m.eliminate_zeros()
    show(m.data * 2.0, m.indices, m.sum(axis=0) + y[:100], m @ y[:100], m.max(axis=1).toarray())
    file = io.BytesIO()
    sparse.save_npz(file, sparse.csc_array(m))
    file.seek(0)
    back = sparse.load_npz(file)
    show((back * y[:100]).sum(), sparse.find(m[:9])[2], sparse.block_array([[m, None], [None,
        m]]).shape)
""",
)
add(
    "linalg_of_structure",
    "scipy",
    "from scipy import linalg\n",
    """
    a = np.outer(y[:60], x[:60]) + np.outer(x[:60], y[:60]) + np.diag(y[:60] * 5.0)
    w, v = linalg.eigh(a, np.diag(y[:60]), subset_by_index=[57, 59])
    show(w, np.abs(v * y[:60, None]), linalg.eigh_tridiagonal(y[:50] * 2.0, x[:49] - 1.0)[0])
    c = linalg.cho_factor(a * 1.0, lower=True, overwrite_a=True)
    show(linalg.cho_solve(c, y[:60] * 2.0, overwrite_b=True), linalg.ldl(a)[1], linalg.sqrtm(a))
    show(linalg.solve_banded((1, 1), np.stack([x[:50], y[:50], x[:50]]), y[:50]),
        linalg.schur(a)[0],
        linalg.solveh_banded(np.stack([x[:50], y[:50]]),
            x[:50]), linalg.solve_toeplitz(y[:9] - x[:9] * 9e3, y[:9]))
""",
)
add(
    "spatial_pairs_and_hulls",
    "scipy",
    "from scipy import spatial\n",
    """
    p = np.stack([np.cos(x * 900.0) * y, np.sin(x * 700.0) * y], axis=1)[:1500]
    t, u = spatial.cKDTree(p, boxsize=None), spatial.cKDTree(p[:300] * 0.5)
    show(t.count_neighbors(u, y[:3] * 0.1), t.query_ball_point(p[:20], r=y[:20] * 0.1,
        return_length=True))
    show(t.sparse_distance_matrix(u, 0.1).sum(), t.query(p[:9] * 0.9, k=[1, 3], p=1)[0])
    h = spatial.ConvexHull(p[:500], incremental=True)
    h.add_points(p[500:] * 1.5)
    d = spatial.Delaunay(p[:200])
    show(h.area, h.equations[:, 2] * 2.0, h.points[h.vertices] - y[:2],
        d.find_simplex(p[:50] * 0.1) >= 0)
""",
)
add(
    "stats_of_own_distributions",
    "scipy",
    """
    from scipy import stats
    class Ramp(stats.rv_continuous):
        def _cdf(self, v):
            return np.clip(v, 0.0, 1.0) ** 2 * np.ones(v.shape)
""",
    """
    r, w = Ramp(a=0.0, b=1.0), y[:400] * 1.0
    show(*map(float, stats.kstest(x[::50], r.cdf)), *map(float, stats.kstest(w,
        lambda v: (v - 2.9) * w[0] / 9.0)))
    show(*map(float, stats.ks_2samp(w, x[:300] + 3.0)), r.cdf(y - 3.0), np.round(r.ppf(x[1:9]), 6))
    t = stats.permutation_test((w[:30], w[20:50]), lambda a, b: a.mean() - (b * 1.0).mean(),
        n_resamples=99, vectorized=False, rng=1)
    show(t.pvalue, stats.rv_histogram(np.histogram(y, 9)).cdf(y),
        stats.ecdf(w).cdf.evaluate(y[:99]))
    show(stats.multivariate_normal(y[:2], np.diag(y[:2])).pdf(np.stack([y, x], axis=1)),
        stats.rankdata(-y))
""",
)
add(
    "integrate_states",
    "scipy",
    "from scipy import integrate\n",
    """
    k, start = y[:3] * 1.0, x[1:4] * 1e4
    s = integrate.solve_ivp(lambda t, v, k: k - v * t, (0.0, 2.0), start, args=(k,),
        dense_output=True,
        atol=y[:3] * 1e-9, rtol=1e-8)
    show(np.round(s.sol(x[:50] * 100.0), 5), np.round(s.y[:, -1] * k, 5))
    f = integrate.RK45(lambda t, v: v * -k, 0.0, k, 1.0, max_step=0.2)
    while f.status == "running":
        f.step()
    show(np.round(f.y, 5), np.round(f.dense_output()(0.99) + k, 4),
        integrate.quad_vec(lambda t: y * t, 0.0, 1.0)[0])
    b = integrate.solve_ivp(lambda t, v: -k * v, (0.0, 1.0), k, method="Radau", jac=lambda t,
        v: np.diag(-k))
    show(np.round(b.y[:, -1], 3), integrate.romb(y[:257]), integrate.cumulative_simpson(y, x=x))
""",
)
