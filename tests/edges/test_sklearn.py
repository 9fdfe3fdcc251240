"""The estimators of kernattn.sklearn keep scikit-learn's rules: its own checks, kinds of rows, copies, searches."""

from inspect import signature

import numpy as np
import pytest

pytest.importorskip("sklearn")

from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_array_api_input, check_estimator

import kernattn as ka
from covering import turns
from edges.sklearn_cases import ALL, CLASSIFIERS, GIVEN, LABELS, REGRESSORS, TRANSFORMERS, W, X, Y, answer, fitted
from kernattn.errors import ParameterError
from kernattn.sklearn import (
    FeatureClassifier,
    FeatureGP,
    FeatureLogistic,
    FeaturePCA,
    FeatureRegressor,
    FeatureRidge,
    FeatureSVC,
    NystromFeatures,
    PolynomialSketchFeatures,
    RandomFeatures,
)
from xp import KINDS, to_numpy


@pytest.fixture
def dispatch(monkeypatch):
    """Arrays of other libraries stay theirs."""
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    with config_context(array_api_dispatch=True):
        yield


SMALL = {  # hundreds of fits: folds and searches of few features, not both in each, and of three estimators none
    FeatureRidge: {"num_features": 32, "lengthscale": 10.0},
    FeatureGP: {"num_features": 32, "lengthscale": 10.0},
    FeatureClassifier: {"num_features": 32, "lengthscale": "scale"},
    FeatureLogistic: {"num_features": 32, "lengthscale": "scale", "ridge": 0.1},
    FeatureRegressor: {"num_features": 32, "lengthscale": 10.0, "ridge": 0.1},
    FeatureSVC: {"num_features": 32, "lengthscale": "scale", "ridge": 0.1},
}
INSTANCES = [cls(**SMALL.get(cls, {})) for cls in ALL]
INSTANCES.append(FeatureRidge(ka.kernels.Polynomial(coef0=1.0), ridge=1.0))
OTHERS = [
    FeatureClassifier(),
    FeatureGP(num_features=32),
    FeatureGP(lengthscale=10.0, num_features=32, linear=True, metric="learned"),
    FeatureLogistic(num_features=32, lengthscale="scale"),
    FeatureRidge(ridge=1.0),
    FeatureRidge(lengthscale=10.0, ridge=1.0, num_features=32, metric="learned"),
    FeatureLogistic(lengthscale="scale", ridge=0.1, num_features=32, metric="learned"),
    FeaturePCA(whiten=True),
    RandomFeatures(estimator="kmeans"),
    RandomFeatures("polynomial"),
]
INSTANCES += [pytest.param(estimator, marks=pytest.mark.slow) for estimator in OTHERS]


@pytest.mark.filterwarnings("ignore:the (first|penalty that):UserWarning")  # of few rows, and of none but exact ones
@pytest.mark.parametrize("estimator", INSTANCES, ids=lambda estimator: type(estimator).__name__)
def test_checks_of_scikit_learn(estimator, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    assert {result["status"] for result in check_estimator(estimator)} == {"passed"}


@pytest.mark.parametrize(("dtype", "library"), turns(["float32", "float64"], ["numpy", "array_api_strict", "torch"]))
@pytest.mark.parametrize("cls", ALL)
def test_checks_of_arrays(cls, dtype, library, monkeypatch):
    pytest.importorskip(library)
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    values = cls not in CLASSIFIERS  # scikit-learn averages the accuracy of PyTorch's labels in float32
    # folds of targets 0 and 1 are at a tie
    options = {"ridge": 0.1, "lengthscale": "scale"} if cls in (FeatureRegressor, FeatureSVC, FeatureLogistic) else {}
    estimator = cls(num_features=16, **options)
    check_array_api_input(
        cls.__name__, estimator, library, dtype_name=dtype, check_values=values, check_sample_weight=True
    )


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.name in ("strict", "torch")], ids=repr)
@pytest.mark.parametrize("cls", ALL)
def test_rows_of_another_library_than_those_of_fit(cls, kind, dispatch):
    estimator = fitted(cls)
    got = answer(estimator, kind.asarray(X))
    assert kind.holds(got)
    np.testing.assert_allclose(to_numpy(got), answer(estimator), rtol=1e-9, atol=1e-9)


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


@pytest.mark.filterwarnings("ignore:the penalty that:UserWarning")
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
    for cls in ALL:
        given = {} if cls is PolynomialSketchFeatures else {"kernel": ka.kernels.Polynomial(2, 1.0, 1.0)}
        one = cls(**given, num_features=32, random_state=0)
        assert one.__sklearn_tags__().input_tags.sparse
        got = answer(one.fit(rows, (rows.sum(axis=1) > 2).astype(int)), rows)
        np.testing.assert_allclose(got, answer(one, rows.toarray()), rtol=1e-3, atol=1e-4)


@pytest.mark.filterwarnings("ignore:the penalty that:UserWarning")
def test_sparse_rows_are_fitted_as_dense_ones():
    rows = sparse.random_array((80, 20), density=0.2, format="csr", rng=0)
    y = np.asarray(rows.sum(axis=1)) > 2
    tuned = [{"lengthscale": "tune", "linear": linear} for linear in (False, True, None)]
    cases = [(cls, given) for cls in (FeatureRidge, FeatureLogistic) for given in tuned]
    cases += [
        (FeatureGP, {}),
        (RandomFeatures, {"estimator": "favor_sharp"}),
        (FeatureRidge, {"estimator": "leverage"}),
    ]
    for cls, given in cases:
        given = {"num_features": 16, "random_state": 0, "lengthscale": "scale"} | given
        got, wanted = (answer(cls(**given).fit(x, y), rows.toarray()) for x in (rows, rows.toarray()))
        np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("counts", [None, np.arange(30.0) % 3])
@pytest.mark.parametrize("columns", [20, 1100])
def test_a_line_of_sparse_rows(columns, counts):
    rows = sparse.random_array((30, columns), density=0.2, format="csr", rng=0)
    y = np.asarray(rows[:, :3].sum(axis=1)) + np.arange(30.0)
    given = {"num_features": 8, "random_state": 0, "lengthscale": 1.0, "ridge": 0.1, "linear": True, "margin": None}
    got, wanted = (FeatureRidge(**given).fit(x, y, counts).predict(rows.toarray()) for x in (rows, rows.toarray()))
    np.testing.assert_allclose(got, wanted, rtol=1e-6)
    usual = FeatureRidge(num_features=8, random_state=0, ridge=0.1).fit(rows, y)
    is_wide = columns > 1024  # where the square of the columns is more than sparse rows expect
    assert (usual.feature_map_.num_features_of(columns) == 8) == is_wide


def test_sparse_rows_that_are_refused():
    rows = sparse.random_array((60, 20), density=0.2, format="csr", rng=0)
    metric = FeatureRidge(metric="learned")
    for one in (FeatureGP(estimator="kmeans"), metric, NystromFeatures(np.dot), NystromFeatures("precomputed")):
        assert not one.__sklearn_tags__().input_tags.sparse
        with pytest.raises(TypeError, match=r"Sparse rows are not for"):
            one.fit(rows, np.ones(60))
    with pytest.raises(ParameterError, match="fit_inverse_transform must be False"):
        FeaturePCA(fit_inverse_transform=True).fit(rows)


@pytest.mark.slow
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
    y = LABELS if cls in CLASSIFIERS else Y[:, 0] if cls is FeatureRegressor else Y
    with config_context(enable_metadata_routing=True):
        last = cls(**GIVEN).set_fit_request(sample_weight=True)
        got = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), last).fit(X, y, sample_weight=W)
        if hasattr(cls, "partial_fit"):
            asked = cls(**GIVEN).set_partial_fit_request(sample_weight=True).get_metadata_routing()
            assert asked.partial_fit.requests["sample_weight"]
    alone = cls(**GIVEN).fit(StandardScaler().fit_transform(X), y, sample_weight=W)
    np.testing.assert_allclose(answer(got), answer(alone, StandardScaler().fit_transform(X)), rtol=1e-6)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: FeatureRidge(gamma=0.1), "write lengthscale = 1 / sqrt"),
        (lambda: FeatureRidge(alpha=1.0), "that is ridge here"),
        (lambda: FeatureGP(alpha=1.0), r"noise\*\*2"),
        (lambda: FeatureLogistic(C=1.0), "1 / ridge"),
        (lambda: RandomFeatures(n_components=8), "num_features"),
        (lambda: FeatureRidge(rng=0), "random_state"),
        (lambda: FeatureRidge("rbf").fit(X, Y), "'gaussian' here"),
        (lambda: FeatureRidge("Gaussian").fit(X, Y), "did you mean 'gaussian'"),
        (lambda: FeatureRidge(np.dot).fit(X, Y), "ka.kernels.from_function makes one"),
        (lambda: FeatureRidge(ka.kernels.Gaussian).fit(X, Y), r"Gaussian\(\) is one"),
        (lambda: FeatureRidge(estimator="nystroem").fit(X, Y), "'rpcholesky'"),
        (lambda: NystromFeatures(method="random").fit(X), "'uniform' here"),
        (lambda: FeatureRidge("precomputed").fit(X, Y), "NystromFeatures take a matrix"),
    ],
)
def test_what_scikit_learn_calls_it(call, words):
    with pytest.raises((ValueError, TypeError), match=words):
        call()
    assert FeaturePCA(n_components=3).n_components == 3
    assert PolynomialSketchFeatures(gamma=2.0).gamma == 2.0
    assert next(iter(signature(FeatureRidge).parameters)) == "kernel"
