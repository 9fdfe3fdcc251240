"""ExactKernelRidge is a solve with the kernel matrix, by a factor and by steps, and keeps scikit-learn's rules."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_ridge import KernelRidge
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import check_array_api_input, check_estimator

import kernattn as ka
from covering import turns
from edges.sklearn_cases import X, Y
from kernattn.errors import DTypeError, ParameterError, ShapeError
from kernattn.sklearn import ExactKernelRidge, FeatureRidge

NEW = np.random.default_rng(1).standard_normal((20, 3))
GIVEN = {"lengthscale": 1.5, "ridge": 0.1}
KERNEL = ka.kernels.Gaussian(1.5)


@pytest.fixture
def steps(monkeypatch):
    """Solve by steps whatever the number of rows."""
    monkeypatch.setattr("kernattn.solvers._kernel_ridge.pays", lambda n, c: False)


@pytest.mark.parametrize(
    "estimator",
    [ExactKernelRidge(**GIVEN), pytest.param(ExactKernelRidge("matern", warm_start=True), marks=pytest.mark.slow)],
)
@pytest.mark.filterwarnings("ignore:the penalty that:UserWarning")
def test_checks_of_scikit_learn(estimator, monkeypatch):
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    assert {result["status"] for result in check_estimator(estimator)} == {"passed"}


@pytest.mark.parametrize(("dtype", "library"), turns(["float32", "float64"], ["numpy", "array_api_strict", "torch"]))
def test_checks_of_arrays(dtype, library, monkeypatch):
    pytest.importorskip(library)
    monkeypatch.setenv("SCIPY_ARRAY_API", "1")
    estimator = ExactKernelRidge(lengthscale="scale", ridge=0.1)
    check_array_api_input("ExactKernelRidge", estimator, library, dtype_name=dtype, check_values=True)


@pytest.mark.parametrize("y", [Y[:, 0], Y + np.array([1e9, -3.0])], ids=["one", "several"])
def test_it_is_that_of_scikit_learn_on_targets_less_their_mean(y):
    theirs = KernelRidge(alpha=0.1, kernel="rbf", gamma=0.5 / 1.5**2).fit(X, y - y.mean(axis=0))
    ours = ExactKernelRidge(**GIVEN).fit(X, y)
    wanted = theirs.predict(NEW) + y.mean(axis=0)
    np.testing.assert_allclose(ours.predict(NEW), wanted, atol=1e-9 if y.ndim == 1 else 1e-6)
    assert ours.kernel_ == KERNEL
    assert ours.n_iter_ == ours.solution_.iterations
    got = ours.predict(NEW.astype("f4"))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.usefixtures("steps")
def test_steps_end_where_they_are_told_and_go_on():
    mean = Y.mean(axis=0)
    wanted = mean + KERNEL(NEW, X) @ np.linalg.solve(KERNEL(X) + 0.1 * np.eye(len(X)), Y - mean)
    model = ExactKernelRidge(**GIVEN, num_landmarks=5, max_iter=2, warm_start=True, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"not converged in 2 steps, which left .* of the targets: raise max_"):
        model.fit(X, Y)
    left = model.solution_.residuals[-1]
    assert not model.solution_.converged
    model.set_params(max_iter=200, tol=1e-10).fit(X, Y)
    cold = clone(model).fit(X, Y)
    assert model.solution_.converged
    np.testing.assert_allclose(model.solution_.residuals[0], left, rtol=1e-9)
    np.testing.assert_allclose(cold.solution_.residuals[0], 1)
    for each in (model, cold):
        np.testing.assert_allclose(each.predict(NEW), wanted, atol=1e-8)
    model.fit(X[1:], Y[1:])  # other rows begin anew
    np.testing.assert_allclose(model.solution_.residuals[0], 1)
    model.fit(X[1:], Y[1:, 0])
    assert model.predict(NEW).shape == (20,)


@pytest.mark.parametrize(
    "kernel", ["matern", ka.kernels.Tanimoto("dot"), ka.kernels.from_function(lambda rows: rows.dot() ** 2)]
)
def test_targets_choose_what_is_not_given(kernel):
    model = ExactKernelRidge(kernel, random_state=0).fit(X, Y)
    on_all = FeatureRidge(model.kernel_, num_features=90, estimator="rpcholesky", linear=False, random_state=0).fit(
        X, Y
    )
    np.testing.assert_allclose(model.solution_.penalty, np.exp(np.mean(np.log(on_all.solution_.penalty))))
    assert model.solution_.converged
    if kernel == "matern":
        tuned = FeatureRidge(kernel, linear=False, random_state=0).fit(X, Y).feature_map_.kernel
        assert model.kernel_ == tuned
        by_axes = ExactKernelRidge(kernel, lengthscale="ard", ridge=0.1).fit(X, Y).kernel_
        assert len(by_axes.lengthscale) == 3


def test_copies_and_searches(tmp_path):
    joblib = pytest.importorskip("joblib")
    model = ExactKernelRidge(ka.kernels.Matern(1.5), ridge=0.1).fit(X, Y[:, 0])
    joblib.dump(model, tmp_path / "one.joblib")
    np.testing.assert_array_equal(joblib.load(tmp_path / "one.joblib").predict(NEW), model.predict(NEW))
    grid = {"kernel__nu": [0.5, 2.5], "ridge": [0.1, 100.0]}
    assert GridSearchCV(model, grid, cv=2).fit(X, Y[:, 0]).best_params_["ridge"] == 0.1


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"tol": 0.0}, ParameterError, "tol must be"),
        ({"max_iter": 0}, ParameterError, "max_iter must be"),
        ({"num_landmarks": 0}, ParameterError, "num_landmarks must be"),
        ({"warm_start": 1}, ParameterError, "warm_start must be True or False"),
        ({"ridge": -1.0}, ParameterError, "ridge must be positive"),
        ({"ridge": [1.0, 2.0]}, ShapeError, "ridge must be one number"),
        ({"lengthscale": "long"}, ParameterError, "lengthscale must be"),
        ({"kernel": np.dot}, DTypeError, "kernel must be"),
    ],
)
def test_arguments_are_judged_before_any_work(given, error, words, monkeypatch):
    for name in ("tune_by_landmarks", "kernel_ridge"):
        monkeypatch.setattr(f"kernattn.sklearn._exact.{name}", lambda *args, **kwargs: pytest.fail("worked"))
    with pytest.raises(error, match=words):
        ExactKernelRidge(**given).fit(X, Y)


@pytest.mark.parametrize("given", [GIVEN, {"lengthscale": "tune", "random_state": 0}])
def test_a_weight_is_so_many_copies(given):
    counts = np.random.default_rng(2).integers(0, 3, len(X))
    copies = np.repeat(np.arange(len(X)), counts)
    one = ExactKernelRidge(**given).fit(X, Y, sample_weight=counts)
    other = ExactKernelRidge(**given).fit(X[copies], Y[copies])
    np.testing.assert_allclose(one.y_mean_, other.y_mean_)
    assert one.kernel_.lengthscale == pytest.approx(other.kernel_.lengthscale)
    np.testing.assert_allclose(one.solution_.penalty, other.solution_.penalty, rtol=1e-6)
    np.testing.assert_allclose(one.predict(NEW), other.predict(NEW), atol=1e-6)


@pytest.mark.parametrize("given", [GIVEN, {"kernel": "tanimoto", "ridge": 0.1}, {"random_state": 0}])
def test_sparse_rows_are_the_dense_ones(given):
    x, new = np.abs(X), np.abs(NEW)
    rows, weights = sparse.csr_array(x), np.random.default_rng(2).random(len(X))
    dense = ExactKernelRidge(**given, warm_start=True).fit(x, Y, sample_weight=weights)
    model = ExactKernelRidge(**given, warm_start=True).fit(rows, Y, sample_weight=weights)
    for some in (new, sparse.csr_array(new)):
        np.testing.assert_allclose(model.predict(some), dense.predict(new), atol=1e-8)
    assert model.fit(rows, Y, sample_weight=weights).solution_.residuals[0].max() < 1e-3


def test_what_is_refused():
    with pytest.raises(ParameterError, match="sample_weight must be zero or more"):
        ExactKernelRidge(**GIVEN).fit(X, Y, sample_weight=-np.ones(len(X)))
    with pytest.raises(TypeError, match="that is ridge here"):
        ExactKernelRidge(alpha=1.0)
