"""Kernels of estimators: parameters by name, matrices and functions in their place; ways back from components."""

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.decomposition import KernelPCA
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import kernattn as ka
from edges.sklearn_cases import ALL, CLASSIFIERS, LABELS, TRANSFORMERS, W, X, Y
from kernattn.errors import ParameterError, ShapeError
from kernattn.features import Nystrom
from kernattn.kernels import Gaussian, Matern
from kernattn.sklearn import FeaturePCA, FeatureRidge, NystromFeatures, RandomFeatures
from kernattn.sklearn._pairs import OfPairs

NEW = np.random.default_rng(1).standard_normal((11, 3))


@pytest.mark.filterwarnings("ignore:the penalty that:UserWarning")
@pytest.mark.parametrize("cls", [cls for cls in ALL if "kernel" in cls().get_params()])
def test_parameters_of_kernels_are_searched(cls):
    """As the same numbers of an estimator's own parameter are; kernels that are shared do not change."""
    kernel, grid = Gaussian(), [0.05, 2.0]
    y = LABELS if cls in CLASSIFIERS else Y[:, 0]
    more = {name: value for name, value in (("linear", False), ("ridge", 1.0)) if name in cls().get_params()}
    both = []
    for parameter, given in (("kernel__lengthscale", kernel), ("lengthscale", "gaussian")):
        one = cls(kernel=given, num_features=16, random_state=0, **more)
        name = parameter
        if cls in TRANSFORMERS:
            one, name = make_pipeline(one, Ridge()), f"{cls.__name__.lower()}__{parameter}"
        both.append(GridSearchCV(one, {name: grid}, cv=2).fit(X, y).cv_results_["mean_test_score"])
    np.testing.assert_allclose(*both)
    assert both[0][0] < both[0][1]
    assert kernel == Gaussian()


def test_parameters_of_members():
    kernel = 2.0 * Gaussian(1.5) + Matern(2.5) * ka.kernels.Periodic()
    one = FeatureRidge(kernel, ridge=1.0)
    params = one.get_params()
    assert "kernel__k1" not in one.get_params(deep=False)
    assert (params["kernel__k1__factor"], params["kernel__k2__k1__nu"]) == (2.0, 2.5)
    two = clone(one).set_params(kernel__k1__kernel__lengthscale=3.0, kernel__k2__k2=Matern(), kernel__k2__k2__nu=0.5)
    assert two.kernel == 2.0 * Gaussian(3.0) + Matern(2.5) * Matern(0.5)
    assert one.kernel == kernel
    assert clone(two).set_params(**params).get_params() == params
    assert one.set_params(kernel="matern", ridge=2.0).ridge == 2.0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kernel__lengthscale": 2.0}, "kernel is a name, 'gaussian': search lengthscale="),
        ({"kernel": Gaussian(), "kernel__nu": 2.0}, "are kernel__lengthscale; got kernel__nu"),
        ({"kernel": Gaussian(), "kernel__lengthscale__x": 2.0}, "kernel__lengthscale=1.0 are none"),
        ({"kernel": Gaussian(), "kernel__lengthscale": -2.0}, "lengthscale must be a positive"),
        ({"kernel": Gaussian(), "lengthscale": 1.0, "kernel__lengthscale": 2.0}, "no effect beside lengthscale"),
        ({"kernels": 2.0}, "Invalid parameter"),
    ],
)
def test_parameters_that_are_refused(given, words):
    one = FeatureRidge()
    with pytest.raises(ValueError, match=words):
        one.set_params(**given)
    assert one.get_params() == FeatureRidge().get_params()


def rbf(x, y, gamma=1.0):
    assert x.shape == y.shape == (3,)
    return np.exp(-gamma * np.sum((x - y) ** 2))


def matrix(x, y, gamma=0.3):
    return np.exp(-gamma * np.sum((x[:, None] - y) ** 2, axis=-1))


@pytest.mark.parametrize("kind", ["function", "matrix"])
def test_nystrom_features_are_those_of_scikit_learn(kind):
    """Of all rows as landmarks, that both have; of fewer, at scikit-learn's landmarks."""
    if kind == "function":
        x, new, given = X, NEW, {"kernel": rbf, "kernel_params": {"gamma": 0.3}}
    else:
        x, new, given = matrix(X, X), matrix(NEW, X), {"kernel": "precomputed"}
    theirs = Nystroem(**given, n_components=len(X)).fit(x)
    ours = NystromFeatures(**given, num_features=len(X)).fit(x)
    got, wanted = (one.transform(new) @ one.transform(x).T for one in (ours, theirs))
    np.testing.assert_allclose(got, wanted, atol=1e-8)
    np.testing.assert_allclose(got, matrix(NEW, X), atol=1e-8)
    theirs = Nystroem(rbf, kernel_params={"gamma": 0.3}, n_components=12, random_state=0).fit(X)
    data, kernel = (X, OfPairs(rbf, {"gamma": 0.3})) if kind == "function" else (x, "precomputed")
    phi = ka.features.nystrom(data, kernel, landmarks=np.array(theirs.component_indices_))
    np.testing.assert_allclose(phi(new) @ phi(x).T, theirs.transform(NEW) @ theirs.transform(X).T, atol=1e-10)


def test_matrices_of_folds_are_cut_on_both_sides():
    scores = []
    for x, kernel in ((matrix(X, X), "precomputed"), (X, Gaussian(0.6**-0.5))):
        one = make_pipeline(NystromFeatures(kernel, num_features=40, random_state=0), Ridge(0.1))
        assert one.__sklearn_tags__().input_tags.pairwise is (kernel == "precomputed")
        search = GridSearchCV(one, {"nystromfeatures__num_features": [2, 40]}, cv=3).fit(x, Y[:, 0])
        scores.append(search.cv_results_["mean_test_score"])
    np.testing.assert_allclose(*scores, atol=1e-6)
    assert scores[0][0] < scores[0][1]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kernel": "precomputed", "lengthscale": 1.0}, "lengthscale must be None for kernel='precomputed'"),
        ({"kernel": "precomputed"}, r"must be \(n, n\)"),
        ({"kernel": rbf, "lengthscale": "scale"}, "lengthscale must be None for"),
        ({"kernel_params": {"gamma": 1.0}}, "kernel_params are for a function"),
        ({"kernel": lambda x, y: x * y}, "kernel must return a number for two rows"),
        ({"kernel": rbf, "method": "best"}, "method must be one of"),
    ],
)
def test_kernels_that_are_refused(given, words):
    with pytest.raises((ParameterError, ShapeError), match=words):
        NystromFeatures(**given).fit(X)


def test_ways_back_from_components():
    """Rows on a curve from few coordinates, at least as near as by scikit-learn's; weights count."""
    rng = np.random.default_rng(0)
    turn = rng.uniform(1.5, 4.5, 400) * np.pi
    x = np.column_stack([turn * np.cos(turn), turn * np.sin(turn), rng.uniform(0, 10, 400)]) / 6
    given = {"num_features": 256, "lengthscale": 1.0, "random_state": 0, "fit_inverse_transform": True}
    ours = FeaturePCA(6, **given, alpha=0.1).fit(x[:300])
    theirs = KernelPCA(6, kernel="rbf", gamma=0.5, fit_inverse_transform=True, alpha=0.1).fit(x[:300])
    errors = [np.mean((one.inverse_transform(one.transform(x[300:])) - x[300:]) ** 2) for one in (ours, theirs)]
    assert errors[0] < min(errors[1], 0.02 * np.var(x, axis=0).mean())
    assert ours.inverse_transform(ours.transform(x[:5].astype("f4"))).dtype == np.float32
    chosen = FeaturePCA(6, **given, alpha=None, whiten=True).fit(x[:300])
    assert np.mean((chosen.inverse_transform(chosen.transform(x[300:])) - x[300:]) ** 2) < 2 * errors[0]
    counts = np.arange(300) % 3
    one = FeaturePCA(3, **given).fit(x[:300], sample_weight=counts)
    other = FeaturePCA(3, **given).fit(x[:300].repeat(counts, axis=0))
    z = one.transform(x[300:])
    np.testing.assert_allclose(other.inverse_transform(z), one.inverse_transform(z), rtol=1e-4, atol=1e-4)


def test_a_way_back_that_is_chosen_is_none_of_rounding():
    """Few categories have coordinates without noise, by whose evidence no ridge is small enough."""
    rows = np.random.default_rng(1).integers(0, 2, (200, 5)).astype(float)
    one = FeaturePCA(5, num_features=64, fit_inverse_transform=True, alpha=None, random_state=0).fit(rows)
    assert np.min(one.inverse_.penalty) > 0.99e-5


def test_ways_back_that_are_refused():
    one = FeaturePCA(2, num_features=16, fit_inverse_transform=True, random_state=0).fit(X, sample_weight=W)
    with pytest.raises(ShapeError, match=r"X must be \(n, 2\), coordinates"):
        one.inverse_transform(X)
    other = FeaturePCA(2, num_features=16).fit(X)
    assert not hasattr(other, "inverse_transform")
    for parts in (other.set_params(fit_inverse_transform=True), one.partial_fit(X)):
        with pytest.raises(ParameterError, match="needs all rows in one fit"):
            parts.inverse_transform(X[:, :2])
    for given in ({"alpha": 0.0}, {"fit_inverse_transform": "yes"}):
        with pytest.raises(ParameterError, match=next(iter(given))):
            FeaturePCA(**{"fit_inverse_transform": True} | given).fit(X)


def test_kernel_functions_are_for_landmarks():
    with pytest.raises(TypeError, match="NystromFeatures takes its matrix"):
        RandomFeatures(rbf).fit(X)


def test_old_names():
    with pytest.warns(DeprecationWarning, match=r"NystromFeatures\(landmarks=\) is now method="):
        one = NystromFeatures(landmarks="uniform")
    assert one.get_params()["method"] == "uniform"
    with pytest.warns(DeprecationWarning, match="landmarks=.* is now method="):
        one.set_params(landmarks="greedy")
    assert one.method == "greedy"


def test_sets_have_landmarks_by_default():
    """As many random features of sets say far less: a mean of signs has the variance of one whatever the kernel is."""
    rng = np.random.default_rng(0)
    kinds, own = rng.random((20, 256)) < 0.1, rng.random((400, 256)) < 0.04
    bits = kinds[rng.integers(0, 20, 400)] & (rng.random((400, 256)) < 0.6) | own
    y = bits @ rng.standard_normal(256)
    usual, features = (
        FeatureRidge("tanimoto", estimator=each, random_state=0).fit(bits[:300], y[:300]).score(bits[300:], y[300:])
        for each in (None, "auto")
    )
    assert features + 0.1 < usual
    wide = FeatureRidge("tanimoto", num_features=16, random_state=0).fit(np.tile(bits[:50], 8), y[:50])
    assert isinstance(wide.feature_map_, Nystrom)
