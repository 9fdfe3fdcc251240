"""The estimators of kernattn.sklearn: scikit-learn's own checks, and that they are ka.features and ka.solvers."""

import pickle

import numpy as np
import pytest

pytest.importorskip("sklearn")

from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_array_api_input, check_estimator

import kernattn as ka
from kernattn.errors import DTypeError, ParameterError, ShapeError
from kernattn.sklearn import (
    FeatureClassifier,
    FeatureGP,
    FeatureLogistic,
    FeaturePCA,
    FeatureRidge,
    NystromFeatures,
    PolynomialSketchFeatures,
    RandomFeatures,
)
from xp import KINDS, to_numpy

TRANSFORMERS = [RandomFeatures, NystromFeatures, PolynomialSketchFeatures, FeaturePCA]
REGRESSORS = [FeatureRidge, FeatureGP]
CLASSIFIERS = [FeatureClassifier, FeatureLogistic]
ALL = TRANSFORMERS + REGRESSORS + CLASSIFIERS
RNG = np.random.default_rng(0)
X = RNG.standard_normal((90, 3))
Y = np.column_stack([np.sin(2 * X[:, 0]), X[:, 1] * X[:, 2]]) + 0.1 * RNG.standard_normal((90, 2))
W = RNG.uniform(0.5, 3, 90)
LABELS = np.array(["c", "a", "b"])[np.digitize(X[:, 0], [-0.5, 0.5])]
KERNEL = ka.kernels.Gaussian(1.5)
GIVEN = {"lengthscale": 1.5, "num_features": 32, "random_state": 3}
PHI = ka.random_features(KERNEL, 3, 32, rng=3)


def fitted(cls, x=X, **parameters):
    parameters = {"num_features": 32, "random_state": 3} | parameters
    y = [] if cls in TRANSFORMERS else [LABELS[: len(x)] if cls in CLASSIFIERS else Y[: len(x), 0]]
    return cls(**parameters).fit(x, *y)


def answer(estimator, x=X):
    methods = ("transform", "decision_function", "predict")
    return getattr(estimator, next(name for name in methods if hasattr(estimator, name)))(x)


@pytest.fixture
def dispatch(monkeypatch):
    """Arrays of other libraries stay theirs."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    with config_context(array_api_dispatch=True):
        yield


INSTANCES = [cls() for cls in ALL]
INSTANCES += [FeatureRidge(ridge=1.0), FeaturePCA(whiten=True), RandomFeatures(estimator="kmeans")]
INSTANCES += [RandomFeatures("polynomial"), FeatureRidge(ka.kernels.Polynomial(coef0=1.0), ridge=1.0)]


@pytest.mark.parametrize("estimator", INSTANCES, ids=lambda estimator: type(estimator).__name__)
def test_checks_of_scikit_learn(estimator, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    assert {result["status"] for result in check_estimator(estimator)} == {"passed"}


@pytest.mark.parametrize("library", ["numpy", "array_api_strict", "torch"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("cls", ALL)
def test_checks_of_arrays(cls, dtype, library, monkeypatch):
    pytest.importorskip(library)
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    values = cls not in CLASSIFIERS  # scikit-learn averages the accuracy of PyTorch's labels in float32
    check_array_api_input(
        cls.__name__, cls(num_features=16), library, dtype_name=dtype, check_values=values, check_sample_weight=True
    )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name in ("strict", "torch")], ids=repr)
@pytest.mark.parametrize("cls", ALL)
def test_rows_of_another_library_than_those_of_fit(cls, kind, dispatch):
    estimator = fitted(cls)
    got = answer(estimator, kind.asarray(X))
    assert kind.holds(got)
    np.testing.assert_allclose(to_numpy(got), answer(estimator), rtol=1e-9, atol=1e-9)


def test_to_the_bit():
    np.testing.assert_array_equal(RandomFeatures(**GIVEN).fit_transform(X), PHI(X))
    phi = ka.features.nystrom(KERNEL, X, 32, "rpcholesky", rng=3)
    np.testing.assert_array_equal(NystromFeatures(**GIVEN).fit_transform(X), phi(X))
    np.testing.assert_array_equal(RandomFeatures(estimator="rpcholesky", **GIVEN).fit_transform(X), phi(X))
    phi = ka.random_features(ka.kernels.Polynomial(3, 0.5, 1.0), 3, 32, rng=3)
    sketch = PolynomialSketchFeatures(3, gamma=0.5, coef0=1.0, num_features=32, random_state=3)
    np.testing.assert_array_equal(sketch.fit_transform(X), phi(X))
    m = ka.solvers.moments(PHI, X, Y, weights=W)
    ridge = FeatureRidge(ridge=0.3, **GIVEN).fit(X, Y, sample_weight=W)
    np.testing.assert_array_equal(ridge.predict(X), ka.solvers.ridge(m, 0.3).predict(X))
    m = ka.solvers.moments(PHI, X, weights=W)
    for whitened, solve in ((False, ka.solvers.pca), (True, ka.solvers.whiten)):
        found = FeaturePCA(4, whiten=whitened, **GIVEN).fit(X, sample_weight=W)
        np.testing.assert_array_equal(found.transform(X), solve(m, 4).transform(X))
    mean = np.average(Y, axis=0, weights=W)
    process = ka.solvers.gp(ka.solvers.moments(PHI, X, Y - mean, weights=W), 0.2, [1.0, 2.0])
    got, std = FeatureGP(noise=0.2, amplitude=[1.0, 2.0], **GIVEN).fit(X, Y, W).predict(X, return_std=True)
    np.testing.assert_array_equal(got, process.mean(X) + mean)
    np.testing.assert_array_equal(std, np.sqrt(process.variance(X) + 0.2**2))


def test_scales_that_data_choose():
    m = ka.solvers.moments(PHI, X, Y[:, 0])
    np.testing.assert_array_equal(
        FeatureRidge(**GIVEN).fit(X, Y[:, 0]).solution_.ridge, ka.solvers.ridge(m, lowest=1e-5).ridge
    )
    process = ka.solvers.gp(ka.solvers.moments(PHI, X, Y[:, 0] - np.average(Y[:, 0])), lowest=1e-5)
    found = FeatureGP(**GIVEN).fit(X, Y[:, 0]).solution_
    np.testing.assert_array_equal(found.noise, process.noise)
    np.testing.assert_array_equal(found.amplitude, process.amplitude)


@pytest.mark.parametrize("cls", [FeatureRidge, FeatureGP])
def test_a_weight_counts_also_where_data_choose_the_scales(cls):
    weights = np.random.default_rng(1).integers(0, 4, 90)
    one = cls(num_features=32, random_state=0).fit(X, Y[:, 0], sample_weight=weights)
    other = cls(num_features=32, random_state=0).fit(X.repeat(weights, axis=0), Y.repeat(weights, axis=0)[:, 0])
    np.testing.assert_allclose(one.predict(X), other.predict(X), rtol=1e-4, atol=1e-4)
    small = cls(num_features=32, random_state=0).fit(X, Y[:, 0], sample_weight=np.full(90, 1 / 90))
    plain = cls(num_features=32, random_state=0).fit(X, Y[:, 0])
    np.testing.assert_allclose(small.predict(X), plain.predict(X), atol=1e-3)  # shares, which sum to 1


@pytest.mark.parametrize("cls", [FeatureRidge, FeatureGP, FeaturePCA])
def test_parts_are_the_whole(cls):
    parts, whole = (cls(**GIVEN) for _ in range(2))
    y = [] if cls is FeaturePCA else [Y - Y[:30].mean(axis=0)]
    whole.fit(X, *y, sample_weight=W)
    for i in range(0, 90, 30):
        here = slice(i, i + 30)
        parts.partial_fit(X[here], *(each[here] for each in y), sample_weight=W[here])
        parts = pickle.loads(pickle.dumps(parts))
    assert parts.moments_.n == 90
    np.testing.assert_allclose(parts.moments_.gram, whole.moments_.gram)
    np.testing.assert_allclose(answer(parts), answer(whole), rtol=0.01 if cls is FeatureGP else 1e-6, atol=0.01)


@pytest.mark.parametrize("cls", [RandomFeatures, NystromFeatures, PolynomialSketchFeatures])
def test_the_first_part_draws(cls):
    one = cls(num_features=32, random_state=3)
    phi = one.partial_fit(X[:50]).feature_map_
    assert one.partial_fit(X).feature_map_ is phi
    np.testing.assert_array_equal(one.transform(X), fitted(cls, X[:50]).transform(X))
    assert one.fit(X).feature_map_ is not phi


@pytest.mark.parametrize("cls", ALL)
def test_random_states(cls):
    def of(state):
        return answer(fitted(cls, random_state=state))

    np.testing.assert_array_equal(of(5), of(np.int64(5)))
    np.testing.assert_array_equal(of(np.random.RandomState(5)), of(np.random.RandomState(5)))
    np.random.seed(7)  # noqa: NPY002
    first, second = of(None), of(None)
    np.random.seed(7)  # noqa: NPY002
    np.testing.assert_array_equal(of(None), first)
    for other in (of(6), of(np.random.RandomState(5)), second):
        assert np.abs(other - of(5)).max() > 1e-12
    with pytest.raises(ValueError, match="cannot be used to seed"):
        of("5")


@pytest.mark.parametrize("cls", ALL)
def test_dtypes(cls):
    for given, wanted in (("f4", "f4"), ("f8", "f8"), ("f2", "f8"), ("i4", "f8")):
        x = (4 * X).astype(given)
        assert answer(fitted(cls, x), x).dtype == wanted
    assert FeatureGP(**GIVEN).fit(X, Y).predict(X.astype("f4"), return_std=True)[1].dtype == np.float32


@pytest.mark.parametrize("cls", ALL)
def test_joblib_and_clones(cls, tmp_path):
    joblib = pytest.importorskip("joblib")
    one = fitted(cls, kernel=ka.kernels.Matern(2.5)) if "kernel" in cls().get_params() else fitted(cls)
    joblib.dump(one, tmp_path / "one.joblib")
    for mode in (None, "r"):
        np.testing.assert_array_equal(answer(joblib.load(tmp_path / "one.joblib", mmap_mode=mode)), answer(one))
    copy = clone(one)
    assert copy.get_params() == one.get_params()
    assert not hasattr(copy, "feature_map_")


@pytest.mark.parametrize("cls", TRANSFORMERS)
def test_data_frames(cls):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    one = cls(num_features=16, random_state=0).set_output(transform="pandas")
    got = one.fit_transform(frame)
    assert isinstance(got, pandas.DataFrame)
    name = cls.__name__.lower()
    assert list(got.columns) == list(one.get_feature_names_out()) == [f"{name}{i}" for i in range(got.shape[1])]
    np.testing.assert_array_equal(one.feature_names_in_, ["a", "b", "c"])
    np.testing.assert_array_equal(got, cls(num_features=16, random_state=0).fit_transform(X))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sparse_rows(dtype):
    rows = sparse.random_array((60, 20), density=0.2, format="csr", rng=0, dtype=dtype)
    for given in (rows, sparse.csr_matrix(rows), rows.tocoo()):
        one = PolynomialSketchFeatures(2, coef0=1.0, num_features=32, random_state=0)
        got = one.fit_transform(given)
        assert got.dtype == dtype
        np.testing.assert_allclose(got, one.transform(rows.toarray()), rtol=1e-4, atol=1e-5)
    assert not PolynomialSketchFeatures(estimator="exact").__sklearn_tags__().input_tags.sparse
    for cls in (*REGRESSORS, *CLASSIFIERS, FeaturePCA):
        one = cls(kernel=ka.kernels.Polynomial(2, 1.0, 1.0), num_features=64, random_state=0)
        assert one.__sklearn_tags__().input_tags.sparse
        got = answer(one.fit(rows, (rows.sum(axis=1) > 2).astype(int)), rows)
        np.testing.assert_allclose(got, answer(one, rows.toarray()), rtol=1e-3, atol=1e-4)
    refusing = [PolynomialSketchFeatures(estimator="exact", num_features=210), RandomFeatures(), FeatureRidge()]
    for one in (*refusing, FeatureGP("polynomial", estimator="uniform"), NystromFeatures("polynomial")):
        assert not one.__sklearn_tags__().input_tags.sparse
        with pytest.raises(TypeError, match=r"[Ss]parse"):
            one.fit(rows, np.ones(60))


def test_a_search_in_two_processes():
    steps = Pipeline([("scale", StandardScaler()), ("fit", FeatureRidge(num_features=32, random_state=0))])
    kernels = ["gaussian", ka.kernels.Matern(2.5)]
    grid = {"fit__lengthscale": [0.01, 2.0], "fit__kernel": kernels, "fit__estimator": ["auto", "kmeans"]}
    search = GridSearchCV(steps, grid, n_jobs=2, cv=2).fit(X, Y[:, 0])
    assert search.best_params_["fit__lengthscale"] == 2.0
    assert search.best_score_ > 0.5
    alone = GridSearchCV(steps, grid, cv=2).fit(X, Y[:, 0])
    np.testing.assert_allclose(search.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])


@pytest.mark.parametrize("cls", [*REGRESSORS, *CLASSIFIERS, FeaturePCA])
def test_weights_are_routed(cls):
    y = LABELS if cls in CLASSIFIERS else Y
    with config_context(enable_metadata_routing=True):
        last = cls(**GIVEN).set_fit_request(sample_weight=True)
        got = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), last).fit(X, y, sample_weight=W)
        if hasattr(cls, "partial_fit"):
            asked = cls(**GIVEN).set_partial_fit_request(sample_weight=True).get_metadata_routing()
            assert asked.partial_fit.requests["sample_weight"]
    alone = cls(**GIVEN).fit(StandardScaler().fit_transform(X), y, sample_weight=W)
    np.testing.assert_allclose(answer(got), answer(alone, StandardScaler().fit_transform(X)), rtol=1e-6)


def test_kernels():
    usual = ka.kernels.usual_lengthscale(X)

    def kernel(kernel, lengthscale=None):
        return fitted(RandomFeatures, kernel=kernel, lengthscale=lengthscale).feature_map_.kernel

    assert kernel("gaussian") == ka.kernels.Gaussian(usual)
    assert kernel("matern", [1.0, 2.0, 3.0]) == ka.kernels.Matern(lengthscale=[1.0, 2.0, 3.0])
    assert kernel(ka.kernels.Matern(2.5)) == ka.kernels.Matern(2.5, 1.0)
    assert kernel(ka.kernels.Matern(2.5), "scale") == ka.kernels.Matern(2.5, usual)
    assert kernel("softmax") == ka.kernels.Softmax()
    assert kernel("laplacian") == ka.kernels.Laplacian(usual)
    weighted = FeatureRidge(num_features=16).fit(X, Y, sample_weight=W).feature_map_.kernel
    assert weighted == ka.kernels.Gaussian(ka.kernels.usual_lengthscale(X, W))


def test_estimators_that_data_shape():
    got = RandomFeatures(estimator="favor_sharp", num_features=8, lengthscale=2.0, random_state=0).fit(X).feature_map_
    wanted = ka.random_features(ka.kernels.Gaussian(2.0), 3, 8, "favor_sharp", data=X, rng=0)
    assert got.fingerprint == wanted.fingerprint


def test_labels():
    given = np.array(["b", "a"])[(X[:, 0] > 0).astype(int)]
    signs = np.where(given == "b", 1.0, -1.0)
    fit = ka.solvers.ridge(ka.solvers.moments(PHI, X, signs, weights=W), 0.5)
    one = FeatureClassifier(ridge=0.5, **GIVEN).fit(X, given, sample_weight=W)
    np.testing.assert_array_equal(one.decision_function(X), fit.predict(X))
    np.testing.assert_array_equal(one.predict(X), np.where(fit.predict(X) > 0, "b", "a"))
    signs = np.where(LABELS[:, None] == ["a", "b", "c"], 1.0, -1.0)
    fit = ka.solvers.ridge(ka.solvers.moments(PHI, X, signs), 0.5)
    several = FeatureClassifier(ridge=0.5, **GIVEN).fit(X, LABELS)
    np.testing.assert_array_equal(several.decision_function(X), fit.predict(X))
    np.testing.assert_array_equal(several.predict(X), several.classes_[np.argmax(fit.predict(X), axis=1)])
    assert several.score(X, LABELS) > 0.9
    for labels in (LABELS == "a", np.unique(LABELS, return_inverse=True)[1].astype("i2")):
        assert FeatureClassifier(**GIVEN).fit(X, labels).predict(X).dtype == labels.dtype


def test_without_an_intercept():
    for cls, y in ((FeatureRidge, Y), (FeatureClassifier, LABELS), (FeatureLogistic, LABELS)):
        assert not np.any(cls(fit_intercept=False, **GIVEN).fit(X, y).solution_.intercept)
        assert np.all(cls(**GIVEN).fit(X, y).solution_.intercept)


def test_frequencies_of_kernels_by_axes_are_iid():
    phi = RandomFeatures("cauchy", **GIVEN).fit(X).feature_map_
    wanted = ka.random_features(ka.kernels.Cauchy(1.5), 3, 32, projection="iid", rng=3)
    assert phi.fingerprint == wanted.fingerprint


def test_probabilities():
    for labels in (LABELS, LABELS == "a"):
        fit = ka.solvers.logistic(PHI, X, labels, ridge=0.1, weights=W)
        one = FeatureLogistic(ridge=0.1, **GIVEN).fit(X, labels, sample_weight=W)
        np.testing.assert_array_equal(one.decision_function(X), fit.scores(X))
        np.testing.assert_array_equal(one.predict_proba(X), fit.predict_proba(X))
        np.testing.assert_array_equal(one.predict(X), one.classes_[np.argmax(fit.predict_proba(X), axis=1)])
    kept = LABELS != "b"
    without = FeatureLogistic(**GIVEN).fit(X[kept], LABELS[kept])
    np.testing.assert_allclose(FeatureLogistic(**GIVEN).fit(X, LABELS, kept).predict_proba(X), without.predict_proba(X))
    with pytest.raises(ParameterError, match="two classes or more"):
        FeatureLogistic(**GIVEN).fit(X, LABELS, LABELS == "a")


def test_a_fit_that_does_not_converge():
    with pytest.warns(ConvergenceWarning, match="not converged in 1 steps"):
        fit = FeatureLogistic(ridge=1e-6, max_iter=1, **GIVEN).fit(X, LABELS)
    assert fit.n_iter_ == 1


def test_labels_in_parts():
    order = np.argsort(LABELS, kind="stable")
    x, labels = X[order], LABELS[order]
    whole, parts = (FeatureClassifier(**GIVEN) for _ in range(2))
    for i in range(0, 90, 30):
        classes = ["c", "b", "a"] if i in (0, 30) else None
        parts.partial_fit(x[i : i + 30], labels[i : i + 30], classes, W[i : i + 30])
    np.testing.assert_allclose(parts.decision_function(X), whole.fit(x, labels, W).decision_function(X), rtol=1e-6)
    with pytest.raises(ParameterError, match=r"y must hold the classes \['a', 'b', 'c'\]; got \['d'\] too"):
        parts.partial_fit(X[:2], ["a", "d"])
    with pytest.raises(ParameterError, match="classes must be those of the first call"):
        parts.partial_fit(X[:2], ["a", "b"], classes=["a", "b"])
    with pytest.raises(ParameterError, match="two classes or more; got one class, 'a'"):
        FeatureClassifier(**GIVEN).partial_fit(X[:2], ["a", "a"])
    np.testing.assert_array_equal(parts.classes_, ["a", "b", "c"])


def test_variance_of_landmarks_goes_back_to_the_prior():
    process = FeatureGP(estimator="rpcholesky", noise=0.1, amplitude=2.0, **GIVEN).fit(X, Y[:, 0])
    mean, std = process.predict(np.full((1, 3), 50.0), return_std=True)
    np.testing.assert_allclose(mean, Y[:, 0].mean())
    np.testing.assert_allclose(std**2, [2.0**2 + 0.1**2])


@pytest.mark.parametrize(
    ("parameters", "error", "words"),
    [
        ({"kernel": "gauss"}, ParameterError, "kernel must be one of additive_chi2,"),
        ({"kernel": 3}, DTypeError, "kernel must be one of .* or a kernel"),
        ({"kernel": "softmax", "lengthscale": 1.0}, ParameterError, "lengthscale must be None for Softmax"),
        ({"lengthscale": "median"}, ParameterError, "lengthscale must be a positive"),
        ({"lengthscale": [1.0, 2.0]}, ShapeError, "lengthscale has 2 entries"),
        ({"num_features": 0}, ParameterError, "num_features"),
        ({"num_features": 0, "estimator": "uniform"}, ParameterError, "num_features"),
        ({"estimator": "positve"}, ParameterError, "estimator must be"),
        ({"projection": "orthagonal"}, ParameterError, "projection"),
    ],
)
def test_refused_parameters(parameters, error, words):
    for cls in (RandomFeatures, FeatureRidge):
        with pytest.raises(error, match=words):
            fitted(cls, **parameters)


@pytest.mark.parametrize("name", sorted(set(ka.kernels.KERNELS) - {"additive_chi2"}))  # which has sizes of its own
def test_kernels_by_name(name):
    x = np.abs(X)
    for estimator in ("auto", "uniform"):
        assert fitted(RandomFeatures, x, kernel=name, estimator=estimator).transform(x).shape == (90, 32)


def test_all_components():
    assert fitted(FeaturePCA, n_components=None).transform(X).shape == (90, 32)
    white = fitted(FeaturePCA, n_components=None, whiten=True).transform(X)
    np.testing.assert_allclose(np.cov(white.T, bias=True), np.eye(white.shape[1]), atol=1e-6)
    for given in (0, 33, 2.0):
        with pytest.raises(ParameterError, match="n_components must be"):
            fitted(FeaturePCA, n_components=given)


def test_refused_rows():
    for weights, words in ((-W, "zero or more"), (0 * W, "not zero in all"), (W[:5], "a weight for each row")):
        for cls in REGRESSORS:
            with pytest.raises(ValueError, match=words):
                cls(**GIVEN).fit(X, Y, sample_weight=weights)
    with pytest.raises(ParameterError, match="landmarks must be one of"):
        fitted(NystromFeatures, landmarks="best")
    with pytest.raises(ValueError, match="same targets"):
        FeatureRidge(**GIVEN).partial_fit(X, Y).partial_fit(X, Y[:, 0])
    one = FeatureRidge(**GIVEN).partial_fit(X[:1], Y[:1])
    with pytest.raises(ValueError, match="2 rows at least; got 1"):
        one.predict(X)
    assert one.partial_fit(X[1:], Y[1:]).predict(X).shape == Y.shape
