"""More programs that hand arrays to other packages: by operators, subscripts and stores of every
form, by callbacks, objects, generators, threads and files."""

from __future__ import annotations

from .border_programs import add

__all__: list[str] = []

add(
    "pandas_in_place",
    "pandas",
    "import pandas as pd\n",
    """
    df = pd.DataFrame({"a": y, "b": y * 2.0})
    df["b"] += y
    df["c"], df["d"] = y, y - 1.0
    kept = df["e"] = y * 3.0
    df["a"] *= x
    df.loc[:9, "c"] -= y[:10]
    show(df.sum().to_numpy(), kept is not None, float(df["e"].iloc[3]))
    s = df["a"]
    s = s + y
    s -= x
    show(float(s.sum()), [str(d) for d in df.dtypes])
""",
)
add(
    "pandas_comparisons",
    "pandas",
    "import pandas as pd\n",
    """
    s = pd.Series(y * 1.0)
    show(int((s == y).sum()), int((y == s).sum()), int((s < y + 1.0).sum()), int((y <= s).sum()))
    show(type(y > s).__name__, type(s != y).__name__, bool((s >= y).all()))
    show(float((s // y).sum()), float((s % (y + 1.0)).sum()), float((y ** s)[0]))
    q, r = divmod(s, y)
    show(float(q.sum()), float(r.sum()), type(q).__name__)
    q, r = divmod(y, s)
    show(float(q.sum()), type(r).__name__)
""",
)
add(
    "pandas_keys",
    "pandas",
    "import pandas as pd\n",
    """
    df = pd.DataFrame({"a": y, "c": x})
    s = df["a"]
    show(len(df[y > 4.0]), len(s[y > 4.0]), float(df.loc[y > 4.0, "c"].sum()))
    df.loc[y < 3.5, "c"] = -1.0
    df.loc[y > 5.0, ["a", "c"]] = 0.0
    show(float(df["c"].sum()), float(s.iloc[np.arange(5)].sum()), float(df.iloc[:3, 1].sum()))
    s2 = pd.Series(np.arange(5.0), index=y[:5])
    show(float(s2[y[0]]), y[0] in s2.index, y[1] in s2, float(s2.loc[y[2]]))
    s[y > 4.5] = y[y > 4.5] * 2.0
    show(float(s.sum()))
""",
)
add(
    "pandas_attribute_stores",
    "pandas",
    "import pandas as pd\n",
    """
    df = pd.DataFrame({"a": y * 0.0})
    df.a = y
    df.index = np.arange(n) * 2
    df.columns = ["w"]
    show(float(df["w"].sum()), int(df.index[-1]))
    df.attrs["k"] = y[:3]
    s = pd.Series(y)
    s.index = x
    s.name = "s"
    show(float(s.index[1] * 1e6), type(df.attrs["k"]).__name__ in ("ndarray", "Array"), s.name)
""",
)
add(
    "pandas_warns_of_nothing",
    "pandas",
    "import pandas as pd, warnings\n",
    """
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        df = pd.DataFrame({"a": x})
        df["b"] = y
        df.c = y
        s = df["a"] + y
        s[y > 4.0] = 0.0
        pd.concat([pd.Series(y), s]).mean()
    show([type(w.message).__name__ for w in told], float(s.sum()))
""",
)
add(
    "pandas_groups",
    "pandas",
    "import pandas as pd\n",
    """
    k = (y * 2.0).astype(int)
    s = pd.Series(y)
    show(s.groupby(k).mean().to_numpy(), s.groupby(k).agg(lambda v: np.ptp(v.to_numpy())).sum())
    show(s.groupby(k).transform(lambda v: v - np.ones(len(v))).sum())
    show(pd.crosstab(k[:500], k[:500]).shape, pd.qcut(y[:1000], 4, labels=False))
    show(pd.DataFrame({"k": k, "y": y}).pivot_table(index="k", values="y").to_numpy())
    show(s.rolling(5).apply(lambda v: v.sum(), raw=True)[:200].sum())
""",
)
add(
    "pandas_merges",
    "pandas",
    "import pandas as pd\n",
    """
    a = pd.DataFrame({"v": y, "k": np.arange(n)})
    b = pd.DataFrame({"k": np.arange(0, n, 2), "w": x[::2] * 1.0})
    m = a.merge(b, on="k")
    show(m.shape, float(m["w"].sum()), float(pd.concat([a["v"], b["w"]]).sum()))
    show(float(a["v"].combine(pd.Series(y), np.maximum).sum()), float(np.maximum(a["v"], y).sum()))
    show(type(np.add(y, a["v"])).__name__, float(np.where(a["v"] > 4.0, y, 0.0).sum()))
    show(float(a["v"].searchsorted(y[5])), a["v"].isin(y[:7]).sum())
""",
)
add(
    "pandas_extension_and_times",
    "pandas",
    "import pandas as pd\n",
    """
    t = pd.date_range("2020-01-01", periods=n, freq="s")
    s = pd.Series(y, index=t)
    show(float(s.resample("1h").mean().sum()), float(s["2020-01-01 00:00:05"]))
    show(float((t + pd.to_timedelta(y, unit="s"))[3].value))
    c = pd.Categorical.from_codes((y * 0.0).astype(int), ["a"])
    show(len(c), str(pd.array(y[:3]).dtype), pd.arrays.FloatingArray(y[:9], y[:9] > 3.0)[0] > 0)
    show(pd.Interval(y[0], y[9]).length > 0, pd.cut(pd.Series(y), y[:: n // 4]).isna().sum())
""",
)
add(
    "pandas_iteration",
    "pandas",
    "import pandas as pd\n",
    """
    s = pd.Series(y[:50])
    show(sum(v * w for v, w in zip(s, y[:50])), [round(float(v), 4) for v in s.items().__next__()])
    for name, col in pd.DataFrame({"a": y, "b": x}).items():
        show(name, float((col * y).sum()))
    show(float(pd.DataFrame(list(zip(y[:5], x[:5]))).to_numpy().sum()))
    show(pd.DataFrame.from_records([{"v": v} for v in y[:4]]).shape, pd.DataFrame(dict(a=y)).shape)
    show(float(s.map(dict(zip(y[:50], range(50)))).sum()), float(s.agg(["sum", "mean"]).sum()))
""",
)
add(
    "pandas_functions_of_the_program",
    "pandas",
    """
    import pandas as pd
    def scaled(col, by, shift=0.0):
        return col * by + shift
    class Frame(pd.DataFrame):
        @property
        def _constructor(self):
            return Frame
        def weighted(self, w):
            return (self["a"] * w).sum() + np.ones(3).sum()
""",
    """
    df = pd.DataFrame({"a": y})
    show(float(df.apply(scaled, args=(y,), shift=x)["a"].sum()), float(df["a"].pipe(scaled,
        y).sum()))
    f = Frame({"a": y})
    f["b"] = y * 2.0
    show(float(f.weighted(y)), type(f[y > 4.0]).__name__, float((f["a"] + y).sum()))
    show(float(df["a"].where(lambda v: v > 4.0, y).sum()), df.assign(b=y,
        c=lambda d: d.b * y).shape)
""",
)
add(
    "ndimage_footprints",
    "scipy",
    "from scipy import ndimage as nd\n",
    """
    z = y[:: n // 10000][:10000].reshape(100, 100) * 1.0
    foot = np.ones((3, 3), bool)
    show(nd.median_filter(z, footprint=foot), nd.convolve(z, np.ones((3, 3)) / 9.0))
    show(nd.center_of_mass(z), nd.zoom(z[:20, :20], 2.0), nd.rotate(z[:20, :20], 30.0))
    lab, k = nd.label(z > 3.5)
    show(k, nd.sum(z, lab, np.arange(1, k + 1)), nd.find_objects(lab)[0])
    out = np.empty_like(z)
    r = nd.sobel(z, output=out)
    show(r is out, out, nd.labeled_comprehension(z, lab, [1], lambda v: v.sum() * 2.0, float, 0.0))
""",
)
add(
    "ndimage_views",
    "scipy",
    "from scipy import ndimage as nd\n",
    """
    z = y[:10000].reshape(100, 100)
    out = np.zeros((200, 100))
    nd.gaussian_filter(z, 2.0, output=out[::2])
    nd.uniform_filter(z.T, 3, output=out[1::2].T)
    show(out, out[::2], z[::-1])
    nd.affine_transform(z, np.eye(2) * 0.5, output=out[:100])
    out += 1.0
    show(out)
""",
)
add(
    "signal_more",
    "scipy",
    "from scipy import signal\n",
    """
    sos = signal.butter(4, 0.1, output="sos")
    show(signal.sosfilt(sos, y), signal.sosfiltfilt(sos, y), signal.savgol_filter(y, 5, 2))
    f, p = signal.welch(y, nperseg=256)
    show(f, p, signal.hilbert(y[:1000]).imag, signal.decimate(y, 4))
    show(signal.convolve2d(y[:2500].reshape(50, 50), np.ones((3, 3)), mode="same"))
    b = signal.firwin(11, 0.3) * y[0]
    show(signal.lfilter(b, [1.0], y), signal.correlate(y[:500], y[:200]),
        signal.resample(y[:1000], 500))
""",
)
add(
    "optimize_roots",
    "scipy",
    "from scipy import optimize\n",
    """
    w = y[:3] * 1.0
    big = y * 1.0
    show(np.round(optimize.root(lambda v: v * v - w, w * 0.0 + 1.0).x, 6))
    show(round(optimize.brentq(lambda t: float((big * t).mean()) - 1.0, 0.0, 5.0), 6))
    show(np.round(optimize.fsolve(lambda v: [v[0] - w[0], v[1] - w[1]], [0.0, 0.0]), 6))
    r = optimize.minimize(lambda v: ((v - w) ** 2).sum(), np.zeros(3), method="Nelder-Mead")
    show(np.round(r.x, 2), r.success)
    seen = []
    optimize.minimize(lambda v: ((v - w) ** 2).sum(), w * 0.0,
        callback=lambda v: seen.append(v.sum()))
    show(len(seen) > 0, float(np.round(seen[-1], 2)))
""",
)
add(
    "optimize_constraints",
    "scipy",
    "from scipy import optimize\n",
    """
    w = y[:4] * 1.0
    c = optimize.LinearConstraint(np.ones((1, 4)) * 1.0, 0.0, 4.0)
    r = optimize.minimize(lambda v: ((v - w) ** 2).sum(), np.zeros(4), constraints=[c],
        bounds=optimize.Bounds(w * 0.0, w))
    show(np.round(r.x, 4))
    r = optimize.linprog(-w, A_ub=np.ones((1, 4)), b_ub=y[:1] * 1.0)
    show(np.round(r.x.sum(), 5))
    i, j = optimize.linear_sum_assignment(y[:2500].reshape(50, 50))
    show(i, j.sum(), optimize.nnls(np.eye(4) * 2.0, w)[0])
    show(np.round(optimize.differential_evolution(lambda v: ((v - w[:2]) ** 2).sum(), [(0,
        5)] * 2, seed=1, maxiter=20).x, 2))
""",
)
add(
    "linalg_decompositions",
    "scipy",
    "from scipy import linalg\n",
    """
    a = (y[:10000].reshape(100, 100) + np.eye(100) * 200.0)
    u, s, v = linalg.svd(a)
    show(s, np.abs(linalg.qr(a)[1]).sum(), linalg.eigvalsh(a + a.T), linalg.norm(a))
    show(linalg.inv(a), linalg.expm(a[:5, :5] / 300.0), linalg.solve_triangular(a, y[:100],
        lower=True))
    b = a.copy()
    show(linalg.lu_factor(b, overwrite_a=True)[0], linalg.block_diag(a[:2, :2], a[:3, :3]).shape)
    show(linalg.toeplitz(y[:50]), linalg.lstsq(a, y[:100])[0], linalg.null_space(a[:2, :3]).shape)
""",
)
add(
    "sparse_operators",
    "scipy",
    "from scipy import sparse\n",
    """
    m = sparse.random(200, 200, density=0.1, random_state=0, format="csr")
    w = y[:200] * 1.0
    show(m @ w, w @ m, m * w if False else m.dot(w), (m.multiply(w)).sum())
    show(np.asarray(m + w.reshape(1, -1) * np.ones((200, 1))), (m > 0.5).sum())
    d = sparse.diags(y[:200])
    show((d @ m).sum(), (m[w > 3.001]).shape, m[:, np.arange(5)].sum())
    m.data *= 2.0
    m.data[:3] = y[:3]
    m = m.tolil()
    m[0, :] = y[:200]
    show(m.tocsr().sum(), sparse.csr_array((y, (np.arange(n) % 7, np.arange(n) % 11)), shape=(7,
        11)).toarray())
""",
)
add(
    "sparse_solvers",
    "scipy",
    "from scipy import sparse\nfrom scipy.sparse import linalg as sl, csgraph\n",
    """
    a = sparse.diags([y[:100] * 2.0, -np.ones(99), -np.ones(99)], [0, 1, -1], format="csc")
    w = y[:100] * 1.0
    show(sl.spsolve(a, w), sl.splu(a).solve(w), sl.gmres(a, w)[0])
    seen = []
    sl.cg(a, w, callback=lambda v: seen.append(float(v.sum())))
    show(len(seen) > 0, np.round(sl.eigsh(a, k=2, v0=w)[0], 6))
    g = (y[:100].reshape(10, 10) - 2.9)
    show(csgraph.shortest_path(g), csgraph.connected_components(g > 0.05)[0])
""",
)
add(
    "spatial_queries",
    "scipy",
    "from scipy import spatial\nfrom scipy.spatial import distance\n",
    """
    p = np.stack([y, x * 2.0], axis=1)[:2000]
    show(distance.cdist(p[:20], p[20:40], "cosine"), distance.squareform(distance.pdist(p[:5])))
    show(distance.cdist(p[:4], p[:4], lambda a, b: np.abs(a - b).max()))
    t = spatial.KDTree(p)
    show(len(t.query_ball_point(p[5], 0.01)), t.query_pairs(0.0001).__len__(), t.data.sum())
    show(distance.euclidean(p[0], p[9]), spatial.procrustes(p[:9], p[9:18])[2])
    r = spatial.transform.Rotation.from_rotvec(y[:3])
    show(r.apply(p[:3] @ np.ones((2, 3))), spatial.Voronoi(p[:50] * p[:50]).vertices.shape[1])
""",
)
add(
    "stats_distributions",
    "scipy",
    "from scipy import stats\n",
    """
    show(stats.norm.cdf(y), stats.gamma(2.0).pdf(y[:100]), stats.norm.fit(y))
    k = stats.gaussian_kde(y[:500])
    show(k(y[:50]), *map(float, stats.kstest(y[:500], "norm", args=(3.0, 1.0))))
    show(*map(float, stats.spearmanr(x, y)), *map(float, stats.mannwhitneyu(y[:99], y[99:200])))
    r = stats.bootstrap((y[:50],), np.mean, n_resamples=50, random_state=0)
    show(float(r.standard_error), stats.iqr(y), stats.trim_mean(y, 0.1), stats.entropy(y))
    show(stats.binned_statistic(x, y, bins=4).statistic, stats.f_oneway(y[:50], x[:50]).pvalue)
    show(stats.binned_statistic(x, y, lambda v: v.sum(), bins=3).statistic, stats.boxcox(y)[1])
""",
)
add(
    "special_and_ufuncs",
    "scipy",
    "from scipy import special\n",
    """
    out = np.empty(n)
    r = special.jv(1, y, out=out)
    show(r is out, out, special.xlogy(x, y), special.softmax(y[:100]), special.binom(5, y[:10]))
    show((special.erf(y) + y * 2.0), special.sph_harm_y(0, 1, y[:3], x[:3]).real)
    special.expit(y, out=y)
    show(y, special.gamma.reduce(y[:2]) if False else special.comb(5, 2))
""",
)
add(
    "integrate_more",
    "scipy",
    "from scipy import integrate, interpolate\n",
    """
    show(integrate.cumulative_trapezoid(y, x, initial=0), integrate.simpson(y[:101], x=x[:101]))
    w = y[:4] * 1.0
    s = integrate.odeint(lambda v, t: -v + w, w * 0.0, x[:: n // 10])
    show(np.round(s[-1], 5), integrate.fixed_quad(lambda t: np.interp(t, x, y), 0.0, 1.0)[0])
    r = integrate.solve_ivp(lambda t, v: w - v, (0, 1), w * 0.0, t_eval=x[:: n // 5],
        events=lambda t, v: v[0] - 1.0)
    show(np.round(r.y, 4).shape, round(integrate.dblquad(lambda a, b: a * b * w[0], 0, 1, 0,
        1)[0], 6))
    f = interpolate.PchipInterpolator(x[::100], y[::100])
    show(f(x), f.derivative()(x[:9]), interpolate.griddata(np.stack([x, y], 1)[:50] ** 2, y[:50],
        np.ones((2, 2)), method="nearest"))
    show(interpolate.RBFInterpolator(np.stack([x[:30], y[:30] ** 2], 1), y[:30])(np.ones((2,
        2))).shape)
    show(interpolate.splev(x[:50], interpolate.splrep(x[::50], y[::50])),
        interpolate.BSpline(np.arange(8.0), y[:4], 3)(3.5))
""",
)
add(
    "low_level_callables",
    "scipy",
    "import ctypes\nfrom scipy import LowLevelCallable, integrate\n",
    """
    show(integrate.simpson(y, x=x))
    lib = ctypes.CDLL(None)
    p = y.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
    show(p[0], p[5], y.ctypes.strides[0])
    buf = (ctypes.c_double * 10)()
    ctypes.memmove(buf, y.ctypes.data, 80)
    show(sum(buf), memoryview(y)[2], bytes(y[:2]).hex())
    show(integrate.quad(lambda t: t * float(y[1]), 0, 1)[0])
""",
)
add(
    "sklearn_classifiers",
    "sklearn",
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.svm import SVC
    from sklearn.metrics import confusion_matrix, f1_score, mean_squared_error, r2_score
""",
    """
    d = np.stack([y, x * x], axis=1)
    t = (y > 4.2).astype(int)
    m = LogisticRegression().fit(d[::10], t[::10])
    show(m.predict(d), np.round(m.predict_proba(d[:50]), 3), m.classes_)
    show(GaussianNB().fit(d, t).score(d, t), SVC().fit(d[:: n // 200],
        t[:: n // 200]).predict(d[:9]))
    show(confusion_matrix(t, m.predict(d)), f1_score(t, m.predict(d)), mean_squared_error(y,
        y * 1.1), r2_score(y, y + 0.1))
""",
)
add(
    "sklearn_search",
    "sklearn",
    """
    from sklearn.ensemble import GradientBoostingRegressor
    from sklearn.linear_model import Lasso, Ridge
    from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
    from sklearn.metrics import make_scorer
    def score(a, b):
        return float(-np.abs(a - b).mean() - np.zeros(3).sum())
""",
    """
    d, t = np.stack([x, x * y], axis=1)[:: n // 500], y[:: n // 500]
    g = GridSearchCV(Ridge(), {"alpha": y[:3] * 0.1}, cv=3, scoring=make_scorer(score)).fit(d, t)
    show(np.round(g.best_score_, 5), np.round(cross_val_score(Lasso(0.01), d, t, cv=3), 5))
    for train, test in KFold(2).split(d):
        show(np.round(Ridge().fit(d[train], t[train]).score(d[test], t[test]), 5))
    show(np.round(GradientBoostingRegressor(n_estimators=5, random_state=0).fit(d,
        t).predict(d[:5]), 5))
""",
)
add(
    "sklearn_estimator_of_the_program",
    "sklearn",
    """
    from sklearn.base import BaseEstimator, RegressorMixin, clone
    from sklearn.model_selection import cross_val_predict
    from sklearn.utils.validation import check_X_y
    class Mean(RegressorMixin, BaseEstimator):
        def __init__(self, weights=None):
            self.weights = weights
        def fit(self, a, b):
            a, b = check_X_y(a, b)
            self.kept_ = np.ones(len(b)) * b
            self.level_ = self.kept_.mean()
            return self
        def predict(self, a):
            return np.full(len(a), self.level_)
""",
    """
    m = Mean(weights=y)
    show(m.fit(x[:, None], y).predict(x[:5, None]), float(m.kept_.sum()), m.score(x[:, None], y))
    show(cross_val_predict(Mean(), x[:100, None], y[:100], cv=2), m.get_params()["weights"] is y)
    show(type(clone(Mean())).__name__)
    m.extra = y * 2.0
    show(float(m.extra.sum()), m.weights is y)
""",
)
add(
    "sklearn_neighbors_and_text",
    "sklearn",
    """
    from sklearn.cluster import DBSCAN
    from sklearn.decomposition import NMF
    from sklearn.impute import SimpleImputer
    from sklearn.neighbors import NearestNeighbors
    from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, PolynomialFeatures
    from sklearn.metrics import pairwise_distances
""",
    """
    d = np.stack([y, x], axis=1)[:1000]
    show(NearestNeighbors(n_neighbors=2).fit(d).kneighbors(d[:9])[0],
        MinMaxScaler().fit_transform(d))
    show(pairwise_distances(d[:9], metric=lambda a, b: np.abs(a - b).sum()),
        DBSCAN(eps=0.1).fit(d).labels_)
    show(PolynomialFeatures(2).fit_transform(d),
        OneHotEncoder().fit_transform((d * 2).astype(int)).sum())
    d[3, 0] = np.nan
    show(SimpleImputer().fit_transform(d), np.round(NMF(2, init="nndsvd",
        max_iter=50).fit_transform(np.abs(d[4:60])), 3).shape)
""",
)
add(
    "skimage_measures",
    "skimage",
    "from skimage import color, draw, feature, io, measure, morphology, segmentation, util\n",
    """
    image = (np.sin(y[:: n // 10000][:10000] * 60.0) * 0.5 + 0.5).reshape(100, 100)
    show(feature.canny(image), measure.find_contours(image, 0.5)[0].shape[1],
        morphology.skeletonize(image > 0.5))
    rgb = np.stack([image, image * 0.5, 1.0 - image], axis=-1)
    show(color.rgb2gray(rgb), color.rgb2hsv(rgb), util.invert(image), measure.block_reduce(image,
        (4, 4), np.mean))
    rr, cc = draw.disk((50, 50), 20)
    image[rr, cc] = 1.0
    show(image, segmentation.clear_border(image > 0.5), feature.peak_local_max(image,
        num_peaks=3).shape)
    show(measure.regionprops_table(measure.label(image > 0.9), image, properties=("area",))["area"])
""",
)
add(
    "skimage_transforms",
    "skimage",
    """
    from skimage import exposure, filters, restoration, transform
    from skimage.metrics import structural_similarity
""",
    """
    image = (y[:10000] - 3.0).reshape(100, 100) * 30.0
    image /= image.max()
    show(transform.rotate(image, 20), transform.warp(image, lambda p: p * 0.5),
        transform.rescale(image, 0.5))
    show(exposure.rescale_intensity(image), exposure.adjust_gamma(image, 2.0),
        filters.median(image))
    show(structural_similarity(image, image * 0.9, data_range=1.0), filters.unsharp_mask(image))
    t = transform.AffineTransform(scale=(1.1, 0.9), translation=y[:2])
    show(transform.warp(image, t.inverse), t(np.stack([y[:5], x[:5]], 1)),
        restoration.denoise_bilateral(image[:30, :30]))
    show(filters.apply_hysteresis_threshold(image, 0.1, 0.3),
        transform.hough_line(image > 0.5)[0].sum())
""",
)
add(
    "matplotlib_images",
    "matplotlib",
    """
    import io
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib import colors, cm
    from matplotlib.collections import LineCollection
""",
    """
    z = y[:10000].reshape(100, 100) * 1.0
    fig, (a, b) = plt.subplots(1, 2)
    image = a.imshow(z, norm=colors.Normalize(z.min(), z.max()))
    c = a.contour(z, levels=[3.005, 3.01])
    b.pcolormesh(z)
    b.add_collection(LineCollection([np.stack([x[:9], y[:9]], 1), np.stack([y[:9], x[:9]], 1)]))
    image.set_data(z * 2.0)
    show(image.get_array().sum(), len(c.levels), matplotlib.colormaps["viridis"](y[:5] - 3.0))
    out = io.BytesIO()
    fig.savefig(out, format="png", dpi=40)
    show(len(out.getvalue()) > 1000, np.asarray(fig.canvas.buffer_rgba()).sum() > 0)
    plt.close(fig)
""",
)
add(
    "matplotlib_statistics",
    "matplotlib",
    """
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
""",
    """
    fig, ax = plt.subplots()
    bars = ax.bar(y[:5] * 1.0, y[:5], yerr=y[:5] * 0.1)
    box = ax.boxplot([y[:100], x[:100]])
    ax.errorbar(x[:9], y[:9], yerr=x[:9])
    h, xe, ye, _ = ax.hist2d(x[:1000], y[:1000], bins=4)
    q = ax.quiver(x[:9], y[:9], y[:9], x[:9])
    st = ax.stackplot(x[:50], y[:50], y[:50] * 2.0)
    ax.set_xticks(y[:3])
    ax.axhline(y.mean())
    ax.set_ylim(y.min(), y.max())
    show([b.get_height() for b in bars], h, xe, len(box["boxes"]), q.N, len(st), *ax.get_ylim())
    show(ax.get_xticks(), ax.step(x[:9], y[:9])[0].get_xydata(), ax.pie(y[:3])[0][0].theta2 > 0)
    plt.close(fig)
""",
)
add(
    "matplotlib_animation",
    "matplotlib",
    """
    import matplotlib
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.animation import FuncAnimation
    from matplotlib.path import Path
    from matplotlib.transforms import Affine2D
""",
    """
    fig, ax = plt.subplots()
    line, = ax.plot(x[:100], y[:100])
    def update(i):
        line.set_ydata(y[:100] * i)
        line.set_data(x[:100], np.ones(100) * y[:100] * i)
        return (line,)
    a = FuncAnimation(fig, update, frames=3, blit=False)
    a._init_draw()
    for i in range(3):
        a._draw_frame(i)
    show(line.get_ydata())
    p = Path(np.stack([x[:4], y[:4]], 1))
    show(p.contains_points(np.stack([x[:9], y[:9]], 1)),
        Affine2D().rotate(1.0).transform(p.vertices))
    ax.plot_date if False else ax.plot(y[:5], "o", label="a")
    show([t.get_text() for t in ax.legend().get_texts()], ax.lines[-1].get_xydata())
    plt.close(fig)
""",
)
add(
    "xarray_operators",
    "xarray",
    "import xarray as xr\n",
    """
    a = xr.DataArray(y, dims="t")
    show(float((a + y).sum()), float((y + a).sum()), type(y * a).__name__,
        float((a ** 2 - y).sum()))
    a += y
    a[:5] = x[:5]
    a[{"t": slice(5, 9)}] = y[5:9]
    a.values = y * 3.0
    show(a.values, float(a[y > 4.0].sum()), int((a > y).sum()), float(a.where(y > 4.0, 0.0).sum()))
    ds = xr.Dataset({"v": (("i", "j"), y[:100].reshape(10, 10))}, coords={"i": np.arange(10),
        "j": x[:10]})
    ds["w"] = ds["v"] * y[:10]
    ds["v"] += 1.0
    ds.attrs["k"] = y[:2]
    ds["u"], ds["z"] = ("i", y[:10]), ("j", x[:10])
    show(ds["w"].values, ds["v"].values, float(ds["u"].sum()), sorted(map(str, ds.data_vars)))
""",
)
add(
    "xarray_interpolation",
    "xarray",
    "import xarray as xr\n",
    """
    a = xr.DataArray(y[:1000], dims="t", coords={"t": x[:1000]})
    show(a.interp(t=x[:1000:7] * 0.9).values, a.sel(t=x[5], method="nearest").values)
    show(a.interp(t=xr.DataArray(x[1:9], dims="k")).values, a.interp(t=x[3:9],
        method="cubic").values)
    b = xr.DataArray(y[:400].reshape(20, 20), dims=("p", "q"), coords={"p": np.arange(20.0),
        "q": np.arange(20.0)})
    show(b.interp(p=y[:3], q=y[:3]).values, b.interp_like(b[::2]).values,
        b.reindex(p=np.arange(3.0)).values)
    show(a.coarsen(t=10).mean().values, a.groupby_bins("t", 4).mean().values,
        a.integrate("t").values)
    show(xr.concat([a, a + y[:1000]], dim="k").shape, a.rolling(t=3).construct("w").shape,
        a.to_pandas().sum())
    show(xr.apply_ufunc(np.gradient, a).values, b.polyfit("p", 1)["polyfit_coefficients"].values)
""",
)
add(
    "torch_in_place",
    "torch",
    "import torch\n",
    """
    t = torch.from_numpy(y.copy())
    t += torch.from_numpy(y)
    t[torch.from_numpy(y > 4.0)] = 0.0
    t[:5] = torch.as_tensor(x[:5])
    show(t.numpy(), float((t * torch.tensor(y)).sum()))
    v = torch.from_numpy(y)
    y += 1.0
    show(float(v.sum()), y)
    v.mul_(2.0)
    y[0] = -1.0
    show(y, float(v[0]), np.shares_memory(y, v.numpy()))
    w = torch.zeros(n, dtype=torch.float64)
    w.copy_(torch.from_numpy(y))
    w.data = torch.from_numpy(x)
    show(float(w.sum()))
""",
)
add(
    "torch_mixed_operators",
    "torch",
    """
    import torch
    def tell(f):
        try:
            r = f()
            show(type(r).__name__, float(r.sum()))
        except Exception as e:
            show(type(e).__name__)
""",
    """
    t = torch.ones(n, dtype=torch.float64)
    tell(lambda: t * y)
    tell(lambda: y * t)
    tell(lambda: t + y)
    tell(lambda: y - t)
    tell(lambda: t == y)
    tell(lambda: t @ torch.from_numpy(y))
    tell(lambda: t[y > 4.0])
    tell(lambda: t > y)
    tell(lambda: torch.add(t, torch.from_numpy(y)))
    tell(lambda: np.multiply(y, t))
    tell(lambda: t / y)
""",
)
add(
    "torch_autograd",
    "torch",
    """
    import torch
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            ctx.save_for_backward(v)
            return torch.from_numpy(v.detach().numpy() ** 2 * np.ones(len(v)))
        @staticmethod
        def backward(ctx, g):
            v, = ctx.saved_tensors
            return g * 2.0 * v
    class Line(torch.nn.Module):
        def __init__(self, start):
            super().__init__()
            self.w = torch.nn.Parameter(torch.from_numpy(start))
            self.register_buffer("b", torch.ones(1, dtype=torch.float64))
            self.kept = start
        def forward(self, v):
            return v * self.w + self.b
""",
    """
    v = torch.tensor(y, requires_grad=True)
    Square.apply(v).sum().backward()
    show(v.grad.numpy(), float(v.sum()))
    m = Line(np.ones(n) * 0.5)
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    for _ in range(2):
        o.zero_grad()
        ((m(torch.from_numpy(x)) - torch.from_numpy(y)) ** 2).mean().backward()
        o.step()
    show(m.w.detach().numpy(), float(m.kept.sum()))
""",
)
add(
    "torch_interop",
    "torch",
    "import torch\n",
    """
    show(float(torch.from_dlpack(y).sum()), float(torch.frombuffer(y, dtype=torch.float64).sum()))
    t = torch.utils.dlpack.from_dlpack(y)
    t[0] = 50.0
    show(float(y[0]), y)
    z = y.astype(np.float32).reshape(-1, 10)
    c = torch.nn.functional.conv1d(torch.from_numpy(z[:, None, :]), torch.ones(1, 1, 3))
    show(c.numpy(), torch.tensor([y[0], y[1]]).dtype == torch.float64,
        torch.tensor(y[:3].tolist()).sum().item())
    ds = torch.utils.data.TensorDataset(torch.from_numpy(z[:20]), torch.from_numpy(y[:20]))
    for a, b in torch.utils.data.DataLoader(ds, batch_size=10):
        show(float(a.sum()), float(b.sum()))
    show(torch.utils.data.default_collate([y[:3], x[:3]]).shape, torch.linspace(float(y[1]),
        float(y[5]), 3).sum().item())
    show(torch.tensor(np.stack([y, x])).shape, torch.as_tensor([y[:2],
        x[:2]]).shape if False else 0)
""",
)
add(
    "jax_arrays",
    "jax",
    """
    import jax
    import jax.numpy as jnp
    jax.config.update("jax_enable_x64", True)
""",
    """
    j = jnp.asarray(x)
    show(float((j + y).sum()), float((y + j).sum()), type(y * j).__name__.startswith("Array"),
        float((j @ y)))
    show(int((j < y).sum()), float(j[y > 4.0].sum()), float(jnp.where(y > 4.0, y, 0.0).sum()))
    j = j.at[:5].set(y[:5])
    j += y
    show(float(j.sum()), float(jax.jit(lambda a, b: a @ b)(y, x)), jnp.linalg.norm(y))
    show(np.asarray(j) * y, np.add(y, j).shape, float(jax.device_put(y)[3]))
    f = jax.jit(lambda a: jnp.cumsum(a) * np.ones(n))
    show(np.asarray(f(y)), float(jax.value_and_grad(lambda a: (a * y).sum())(x)[0]))
""",
)
add(
    "jax_transforms",
    "jax",
    """
    import jax
    import jax.numpy as jnp
    from jax import lax
    jax.config.update("jax_enable_x64", True)
    def step(c, v):
        return c * 0.9 + v, c
""",
    """
    c, ys = lax.scan(step, 0.0, y[:100])
    show(float(c), np.asarray(ys), np.asarray(lax.map(lambda v: v * 2.0, y[:10])))
    show(np.asarray(jax.vmap(lambda a, b: a * b)(y, x)),
        np.asarray(jax.jacfwd(lambda v: v * y[:3])(x[:3])))
    show(float(lax.fori_loop(0, 3, lambda i, v: v + y[:3].sum(), 0.0)),
        jax.tree_util.tree_leaves([y, {"a": x}]).__len__())
    show(np.asarray(jnp.interp(x[:9], x, y)), np.asarray(jnp.histogram(y, bins=3)[0]),
        np.from_dlpack(jnp.asarray(y)))
""",
)
add(
    "numba_more",
    "numba",
    """
    import numba
    from numba import njit, guvectorize, prange
    @njit
    def pairs(v, w, out):
        for i in range(v.shape[0]):
            out[i] = v[i] * w[i]
        return out
    @guvectorize(["void(float64[:], float64, float64[:])"], "(n),()->(n)")
    def moved(v, by, out):
        for i in range(v.shape[0]):
            out[i] = v[i] + by
    @njit
    def made(n):
        return np.ones(n) * 2.0
    @njit
    def inner(v):
        return made(v.size) + v
""",
    """
    out = y * 0.0
    show(pairs(y, x, out) is out, out, moved(y, 2.0), inner(y))
    z = y.reshape(-1, 10)[:, ::2]
    show(moved(z, 1.0), numba.typeof(y).ndim, pairs.py_func(y[:3], x[:3], np.zeros(3)))
    out *= 2.0
    typed = numba.typed.List([y[:3] * 1.0, x[:3] * 1.0])
    show(out, len(typed), typed[0])
""",
)
add(
    "h5py_stores",
    "h5py",
    "import h5py, os, tempfile\n",
    """
    path = os.path.join(tempfile.mkdtemp(), "a.h5")
    with h5py.File(path, "w") as f:
        g = f.create_group("g")
        g["a"], g["b"] = y, x
        d = g.create_dataset("c", (10, n // 10), "f8", chunks=True)
        kept = d[...] = y.reshape(10, -1)
        d[0] += y[: n // 10]
        d[1, :5] = y[:5]
        d[2, [0, 3]] = y[:2]
        d.attrs["m"], d.attrs["s"] = y.mean(), y[:4]
        e = g.create_dataset("e", data=y[:0], maxshape=(None,))
        e.resize((3,))
        e[y[:3] > 0.0] = y[:3]
        g.require_dataset("a", shape=(n,), dtype="f8")[y > 4.0] = 0.0
    with h5py.File(path) as f:
        show(f["g/a"][:], f["g/c"][()], f["g/c"].attrs["m"], f["g/c"].attrs["s"], f["g/e"][:])
        show(np.asarray(f["g/b"]) * y, f["g/a"][y[:5] > 3.0] if False else 0, kept.shape)
        show(float((f["g/b"][:] + y).sum()), f["g/a"][np.arange(3)])
""",
)
add(
    "zarr_groups",
    "zarr",
    "import zarr\n",
    """
    root = zarr.group()
    a = root.create_array("a", shape=(n,), dtype="f8", chunks=(max(n // 4, 1),))
    a[:] = y
    a[2:5], a[7] = y[:3], y[3]
    root.attrs["k"] = float(y[2])
    show(a[:], a.oindex[np.arange(4)], a.vindex[np.arange(3)], root.attrs["k"])
    a.set_basic_selection(slice(0, 3), x[:3])
    b = zarr.zeros((10, n // 10), dtype="f8")
    b[:, :] = y.reshape(10, -1)
    b[0] = x[: n // 10]
    show(b[:], a[y > 4.0] if False else 0, np.asarray(a) + y,
        a.get_mask_selection(np.asarray(y) > 4.0))
""",
)
add(
    "polars_expressions",
    "polars",
    "import polars as pl\n",
    """
    s = pl.Series("y", y)
    show(float((s + y).sum()), float((s * 2.0 - y).sum()), int((s > y - 1.0).sum()),
        float((s / y).sum()))
    df = pl.DataFrame({"a": y, "b": x}).with_columns(c=pl.lit(pl.Series(y * 2.0)))
    show(df.select(pl.col("a") + pl.col("c")).sum().item(),
        df.filter(pl.col("a") > float(y[3])).shape)
    show(float(np.sqrt(s).sum()), float(np.add(s, 1.0).sum()), s.to_numpy() * y,
        s.is_in(y[:3]).sum())
    df = df.with_columns(pl.Series("d", y - x), pl.Series("e", y[::-1]))
    show(df["d"].sum(), df.to_numpy().sum(),
        df.group_by((pl.col("a") * 2).cast(int)).agg(pl.len()).height)
    s2 = s.clone()
    s2[0] = 7.0
    show(float(s2[0]), s.map_elements(lambda v: v * 2.0, return_dtype=pl.Float64)[:9].sum(),
        df.hstack([pl.Series("f", y)]).width)
""",
)
add(
    "pillow_buffers",
    "PIL",
    "import io\nfrom PIL import Image, ImageDraw, ImageFilter, ImageChops\n",
    """
    a = ((y[:10000] - 3.0) * 90.0).astype(np.uint8).reshape(100, 100)
    i = Image.fromarray(a)
    show(np.asarray(i.filter(ImageFilter.BLUR)), np.asarray(i.rotate(30)), i.getpixel((3, 4)),
        i.getextrema())
    rgb = np.stack([a, a[::-1], a.T], axis=-1)
    j = Image.fromarray(rgb)
    out = io.BytesIO()
    j.save(out, "PNG")
    out.seek(0)
    show(np.asarray(Image.open(out)) + np.ones(3), np.array(j.convert("L")) * 1.0)
    ImageDraw.Draw(i).line([tuple(p) for p in (y[:4].reshape(2, 2) * 10).tolist()], fill=255)
    i.paste(Image.fromarray(a[:10, :10]), (5, 5))
    show(np.asarray(i), np.asarray(ImageChops.add(i, Image.frombytes("L", (100, 100),
        a.tobytes()))))
    show(np.asarray(i.point(lambda v: v // 2)), np.asarray(Image.frombuffer("L", (100, 100), a,
        "raw", "L", 0, 1)))
    whole = (y * 60.0).astype(np.uint8).reshape(-1, 100)
    show(np.asarray(Image.fromarray(whole)))
""",
)
add(
    "joblib_memmaps",
    "joblib",
    """
    from joblib import Parallel, delayed
    def total(a, i):
        return float((a * i).sum())
    def fill(a, out, i):
        out[i] = a[: n_of(a)].sum()
    def n_of(a):
        return a.size // 2
""",
    """
    show(Parallel(2, max_nbytes=1000)(delayed(total)(y, i) for i in range(3)))
    show(Parallel(2, max_nbytes=1000, mmap_mode="c")(delayed(total)({"k": y}["k"],
        i) for i in range(2)))
    out = np.zeros(4)
    Parallel(2, require="sharedmem")(delayed(fill)(y, out, i) for i in range(4))
    show(out, [type(v).__name__ for v in Parallel(2, max_nbytes=None)(delayed(total)(y,
        1) for _ in range(1))])
    show([float(v.sum()) for v in Parallel(2, return_as="generator")(delayed(np.multiply)(y,
        i) for i in range(2))])
""",
)
add(
    "joblib_dumps",
    "joblib",
    """
    import os, pickle, tempfile
    import joblib
    class Model:
        def __init__(self, w):
            self.w = w
""",
    """
    folder = tempfile.mkdtemp()
    m = Model(y)
    joblib.dump([m, y, {"k": (x, y)}], os.path.join(folder, "m"), compress=3)
    back, w, d = joblib.load(os.path.join(folder, "m"))
    show(back.w, w, d["k"][1], m.w is y, type(w).__name__)
    show(joblib.hash(y) == joblib.hash(w), joblib.hash({"a": y}) == joblib.hash({"a": w}))
    show(pickle.loads(pickle.dumps(m)).w, type(pickle.loads(pickle.dumps(y))).__name__)
    mem = joblib.Memory(folder, verbose=0)
    @mem.cache
    def scaled(v, by=2.0):
        return v * by
    show(scaled(y), scaled(y), scaled(y, by=3.0), scaled.check_call_in_cache(y))
""",
)
add(
    "dask_more",
    "dask",
    "import dask\nimport dask.array as da\n",
    """
    a = da.from_array(x, chunks=max(n // 4, 1))
    show((a + y).compute(), (y * a).sum().compute(), (a > y).sum().compute(), type(y - a).__name__)
    a = da.where(a > 0.5, y, a)
    a[a < 0.1] = 0.0
    a[:5] = y[:5]
    show(a.compute(), da.map_blocks(lambda b, c: b + c, a, da.from_array(y,
        chunks=a.chunks)).compute())
    show(da.from_delayed(dask.delayed(lambda v: v * 2.0)(y), shape=(n,),
        dtype=float).mean().compute())
    show(*dask.compute(dask.delayed(sum)([dask.delayed(np.sum)(y), 1.0]), a.max()),
        da.histogram(a, bins=y[:: n // 3] - 2.0)[0].compute())
    out = np.zeros(n)
    da.store(a, out)
    show(out, np.sin(a).compute(), da.asarray(y)[3].compute(),
        da.overlap.map_overlap(lambda v: v * 1.0, a, depth=1).compute())
""",
)
add(
    "dask_frames_and_bags",
    "dask",
    "import dask\nfrom dask import bag\nfrom dask.base import tokenize\n",
    """
    b = bag.from_sequence([y[:3], x[:3]], npartitions=1)
    show(*b.map(lambda v: float(v.sum())).compute(scheduler="sync"))
    show(tokenize(y) == tokenize(y.copy()), tokenize(y) == tokenize(x))
    d = dask.delayed({"a": y, "b": [x, y]})
    show(float(d.compute(scheduler="threads")["b"][1].sum()), float(dask.delayed(y).compute()[3]))
    show(float((dask.delayed(y) + y).compute(scheduler="sync").sum()),
        float((dask.delayed(3.0) * y).compute().sum()))
""",
)
add(
    "numexpr_and_bottlenecks",
    "numexpr",
    "import numexpr as ne\n",
    """
    show(ne.evaluate("where(y > 4, y, x)"), ne.evaluate("sum(y * x)"), ne.evaluate("y * k",
        {"k": 3.0, "y": y}))
    z = y.reshape(-1, 10)
    w = z.T
    show(ne.evaluate("z * 2"), ne.evaluate("w + 1"), ne.evaluate("y[0] + y") if False else 0)
    out = np.zeros(n)
    r = ne.evaluate("exp(x)", out=out)
    out[0] = 5.0
    show(r is out, out, ne.NumExpr("a + b")(y, x))
""",
)
add(
    "networkx_weights",
    "networkx scipy",
    "import networkx as nx\n",
    """
    a = (y[:100].reshape(10, 10) - 2.99) * 100.0
    g = nx.from_numpy_array(a)
    show(nx.to_numpy_array(g), round(nx.shortest_path_length(g, 0, 5, weight="weight"), 4),
        nx.adjacency_matrix(g).sum())
    for i, j in g.edges:
        g.edges[i, j]["w"] = y[i] + y[j]
    g.nodes[0]["v"] = y[:3]
    show(sum(float(d["w"]) for _, _, d in g.edges(data=True)), float(g.nodes[0]["v"].sum()))
    pos = nx.spring_layout(g, pos=dict(enumerate(np.stack([x[:10], y[:10]], 1))), seed=0,
        iterations=2)
    show(len(pos), nx.pagerank(g, personalization=dict(enumerate(y[:10])))[0] > 0)
    nx.set_node_attributes(g, y, "all")
    y[0] = 8.0
    show(g.nodes[3]["all"] is y, nx.get_node_attributes(g, "all")[5] is y, g.nodes[4]["all"])
""",
)
add(
    "executors_of_every_kind",
    "scipy pandas",
    """
    import asyncio
    from concurrent.futures import ThreadPoolExecutor, as_completed
    from functools import partial
    from multiprocessing.pool import ThreadPool
    from threading import Thread, Timer
    import pandas as pd
    from scipy.ndimage import gaussian_filter1d, uniform_filter1d
    def own(v, by):
        return float(pd.Series(v).sum() + (np.ones(len(v)) * by).sum())
    async def later(v):
        await asyncio.sleep(0)
        return float(gaussian_filter1d(v, 1.0).sum())
""",
    """
    with ThreadPoolExecutor(3) as pool:
        jobs = [pool.submit(own, y * i, i) for i in range(3)]
        show(sorted(round(j.result(), 3) for j in as_completed(jobs)))
        show(*pool.map(partial(gaussian_filter1d, sigma=1.0), [y, x]), *pool.map(own, [y, x], [1,
            2]))
    with ThreadPool(2) as pool:
        show(pool.map(uniform_filter1d.__call__ if False else partial(uniform_filter1d, size=3),
            [y, x])[0])
        show(pool.apply(own, (y, 2.0)), pool.starmap(own, [(y, 1.0), (x, 2.0)]))
    out = []
    t = Thread(target=lambda: out.append(float(gaussian_filter1d(y, 1.0).sum())))
    t.start(); t.join()
    show(*out, asyncio.run(later(y)))
""",
)
add(
    "tools_of_the_library",
    "pandas scipy",
    """
    import copy, functools, itertools, operator
    from contextlib import ExitStack, contextmanager
    import pandas as pd
    from scipy.ndimage import gaussian_filter1d
    @functools.singledispatch
    def told(v):
        return "other"
    @told.register(pd.Series)
    def _(v):
        return "series"
    @functools.lru_cache
    def cached(k):
        return gaussian_filter1d(np.ones(100) * k, 1.0)
    @contextmanager
    def holding(v):
        yield pd.Series(v)
""",
    """
    s = pd.Series(y)
    show(float(operator.add(s, y).sum()), float(operator.mul(y, s).sum()),
        operator.itemgetter(2)(s))
    show(float(functools.reduce(operator.add, [s, y, y]).sum()), told(s), told(y), cached(2.0))
    show(float(sum([s, y]).sum()), float(operator.attrgetter("values")(s).sum()),
        operator.contains(s.index, 3))
    with holding(y) as h, ExitStack() as stack:
        stack.callback(h.sum)
        show(float((h + y).sum()))
    show([float(a.sum()) for a in map(operator.add, [s, s], [y, x])], float(copy.deepcopy(s).sum()))
    show(*[float(v) for v in itertools.islice(itertools.accumulate(map(gaussian_filter1d, [y, x],
        [1, 2]), np.add), 1, 2) for v in v[:2]])
    show(isinstance(y, np.ndarray), isinstance(operator.methodcaller("to_numpy")(s), np.ndarray))
""",
)
add(
    "objects_that_packages_call",
    "scipy pandas sklearn",
    """
    import pandas as pd
    from scipy import integrate, optimize
    from scipy.sparse.linalg import LinearOperator, gmres
    from sklearn.metrics import make_scorer
    class Quadratic:
        def __init__(self, goal):
            self.goal, self.calls = goal, 0
        def __call__(self, v):
            self.calls += 1
            return ((v - self.goal) ** 2).sum()
        def gradient(self, v):
            return (v - self.goal) * 2.0
        def matvec(self, v):
            return v * (np.ones(len(v)) + 1.0)
    class Diagonal(LinearOperator):
        def __init__(self, d):
            super().__init__(float, (len(d), len(d)))
            self.d = d
        def _matvec(self, v):
            return self.d * v.ravel()
""",
    """
    q = Quadratic(y[:5] * 1.0)
    r = optimize.minimize(q, np.zeros(5), jac=q.gradient)
    show(np.round(r.x, 5), q.calls > 0, q.goal)
    show(np.round(gmres(LinearOperator((n, n), matvec=q.matvec, dtype=float), y)[0], 5))
    d = Diagonal(y)
    show(d @ x, d.matvec(y), (d * 2.0) @ x, d.d is y, (d + d) @ y)
    class Row(dict):
        pass
    row = Row(a=y[:3], b=x[:3])
    show(pd.DataFrame(row).shape, row["a"] is not None, type(row).__name__)
""",
)
add(
    "generators_that_packages_drain",
    "scipy pandas torch",
    """
    import pandas as pd
    import torch
    from scipy import sparse
    class Batches(torch.utils.data.IterableDataset):
        def __init__(self, v):
            self.v = v
        def __iter__(self):
            for i in range(0, 40, 10):
                yield self.v[i : i + 10] * np.ones(10)
    class Countable:
        def __init__(self, v):
            self.v = v
        def __len__(self):
            return 3
        def __getitem__(self, i):
            if i >= 3:
                raise IndexError(i)
            return self.v * i
        def __iter__(self):
            return (self.v * i for i in range(3))
    def pieces(v):
        got = yield v[:3]
        while got is not None:
            got = yield v[:3] * got
        return v
    def outer(v):
        last = yield from pieces(v)
        yield last
""",
    """
    for b in torch.utils.data.DataLoader(Batches(y), batch_size=2):
        show(tuple(b.shape), float(b.sum()))
    show(pd.DataFrame(Countable(y[:9])).shape,
        float(pd.concat(pd.Series(v) for v in Countable(y)).sum()))
    g = outer(y)
    show(next(g), g.send(2.0), next(g).sum())
    show(sparse.hstack([sparse.csr_matrix(v[:, None]) for v in Countable(y[:50])]).sum(),
        pd.DataFrame(pieces(y)).shape)
    show(pd.Series(float(v.sum()) for v in Countable(y)).to_numpy(),
        pd.DataFrame.from_dict({i: v for i, v in enumerate(Countable(y[:4]))}).shape)
""",
)
add(
    "array_api_mixed",
    "scipy",
    """
    import os
    os.environ["SCIPY_ARRAY_API"] = "1"
    from scipy import fft, linalg, ndimage, signal, special, stats
""",
    """
    plain = np.asarray([1.0, 2.0, 3.0, 4.0])
    kernel = np.array([0.5, 0.5])
    show(special.logsumexp(y), special.xlogy(y[:4], plain), stats.zscore(y), fft.rfft(y))
    show(signal.convolve(y, kernel), ndimage.convolve1d(y, kernel), stats.pearsonr(x, y)[0])
    show(stats.ttest_ind(y[:100], x[:100]).pvalue, ndimage.gaussian_filter(y, 1.0), special.erf(y))
    show(linalg.norm(y) if hasattr(linalg, "norm") else 0, stats.kurtosis(y), signal.detrend(y))
""",
)
add(
    "shared_by_threads",
    "scipy pandas",
    """
    from concurrent.futures import ThreadPoolExecutor
    import pandas as pd
    from scipy.ndimage import gaussian_filter1d
    def work(state, i):
        f = pd.DataFrame(state)
        state["y"] is None
        return float(f["y"].sum() + gaussian_filter1d(state["x"], 1.0).sum() + i)
""",
    """
    state = {"y": y, "x": x}
    kinds = {type(v) for v in state.values()}
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(work, [state] * 40, range(40)))
    show(sum(got), state["y"] is y, state["x"] is x, {type(v) for v in state.values()} == kinds)
    state["y"] += 1.0
    show(y, float((state["x"] * state["y"]).sum()))
""",
)
add(
    "errors_pass_through",
    "scipy pandas torch",
    """
    import pandas as pd, torch
    from scipy import optimize, linalg
    class Mine(Exception):
        pass
    def bad(v):
        raise Mine(float(v[0]) * 0 + 1)
    def tell(f):
        try:
            show(type(f()).__name__)
        except Exception as e:
            show(type(e).__name__, str(e)[:60])
""",
    """
    s, t = pd.Series(y), torch.ones(3)
    tell(lambda: s + y[:-1])
    tell(lambda: s[y[:-1] > 3.0])
    tell(lambda: pd.DataFrame({"a": y}).loc[y[:2] > 3.0])
    tell(lambda: optimize.minimize(bad, y[:2]))
    tell(lambda: linalg.solve(y[:4].reshape(2, 2) * 0.0, y[:2]))
    tell(lambda: t + s)
    tell(lambda: s.loc["none"])
    tell(lambda: pd.concat([y, y]))
    tell(lambda: s.dot(y[:3]))
    def store():
        s.to_frame()["a"] = y[:4]
        pd.DataFrame({"b": y})["a"] = y[:4]
    tell(store)
""",
)
add(
    "many_small_arrays",
    "scipy pandas",
    "import pandas as pd\nfrom scipy import stats\n",
    """
    rows = []
    for i in range(20):
        w = y[i * 10 : i * 10 + 50] * (i + 1.0)
        rows.append({"mean": w.mean(), "std": w.std(), "z": stats.zscore(w)[0], "w": w})
    df = pd.DataFrame(rows)
    show(df.shape, [str(d) for d in df.dtypes], float(df["mean"].sum()), df["w"].map(len).sum())
    df["q"] = [w.max() for w in df["w"]]
    show(float(df["q"].sum()), float(np.stack(df["w"].to_list()).sum()), df.iloc[0]["w"])
    table = {}
    for k, w in zip("abc", (y, x, y * x)):
        table[k] = w
        table[k + "s"] = pd.Series(w).sum()
    show(float(pd.DataFrame({k: table[k] for k in "abc"}).sum().sum()), table["as"],
        table["a"] is y)
""",
)
add(
    "memoryviews_and_buffers",
    "PIL pandas",
    """
    import array, base64, io, struct, zlib
    import pandas as pd
""",
    """
    show(float(pd.Series(y).sum()))
    m = memoryview(y)
    show(m.nbytes, m.format, m[3], zlib.crc32(y), len(base64.b64encode(y[:3])),
        struct.unpack_from("d", y, 8)[0])
    a = array.array("d", y[:5].tobytes())
    a.extend(y[:3])
    b = io.BytesIO()
    b.write(y[:4])
    show(sum(a), len(b.getvalue()), np.frombuffer(b.getvalue()), bytearray(y[:1]).hex())
    m[0] = 9.0
    show(float(y[0]), float(pd.Series(m).sum()), float(pd.Series(np.frombuffer(y)).sum()))
    csv = io.StringIO()
    np.savetxt(csv, y[:3])
    show(len(csv.getvalue().split()), pd.read_csv(io.StringIO("a\\n" + csv.getvalue())).shape)
""",
)
add(
    "text_and_formats",
    "pandas",
    "import json, pprint\nimport pandas as pd\n",
    """
    show(f"{y[3]:.3f} {y.sum():.2f}", "%.2f" % y[1], str(pd.Series(y[:3]).round(2)),
        repr(round(float(y[5]), 3)))
    show(pd.Series(y[:3]).to_json(), pd.DataFrame({"a": y[:2]}).to_dict("list")["a"][0] > 0,
        json.dumps(y[:2].tolist())[:5])
    print(pd.DataFrame({"a": y, "b": x}).describe().round(3))
    print(pd.DataFrame({"a": y[:3]}).style is not None if False else pd.Series({"m": y.mean(),
        "s": y.sum()}).round(3))
    print(y[:3], repr(y[:2]), np.array_str(y[:2]), pd.Series([y[:2], x[:2]]).tolist())
""",
)
