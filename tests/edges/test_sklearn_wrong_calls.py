"""Arguments of estimators that do not fit: errors name them, before any work."""

import numpy as np
import pytest
from scipy import sparse

pytest.importorskip("sklearn")

from sklearn.base import is_classifier
from sklearn.utils import get_tags

from kernattn.errors import DTypeError, ParameterError
from kernattn.sklearn import (
    ExactKernelRidge,
    FeatureClassifier,
    FeatureGP,
    FeatureLogistic,
    FeatureRegressor,
    FeatureRidge,
    FeatureSVC,
    NystromFeatures,
    _drawn,
)

X = np.random.default_rng(0).standard_normal((30, 2))
GIVEN = {"num_features": 8, "lengthscale": 1.0, "random_state": 0}


@pytest.mark.parametrize("made", [FeatureGP, FeatureRidge])
def test_arguments(made):
    for layout in (sparse.csr_array, sparse.coo_matrix):
        with pytest.raises(DTypeError, match="y must be dense targets; got"):
            made(**GIVEN).fit(X, layout(X))
    for wrong in (np.array(["a"] * 30), np.zeros(30, "M8[s]"), np.zeros(30, "i4,f4")):
        with pytest.raises(DTypeError, match="y must hold real numbers; got"):
            made(**GIVEN).fit(X, wrong)
    with pytest.raises(ParameterError, match="random_state must be a non-negative integer; got -1"):
        made(**GIVEN | {"random_state": -1}).fit(X, X[:, 0])
    with pytest.raises(ParameterError, match="estimator must be"):
        made(estimator=np.ones(3), **GIVEN).fit(X, X[:, 0])


@pytest.mark.parametrize("made", [FeatureGP, FeatureLogistic, FeatureRegressor, FeatureRidge])
@pytest.mark.parametrize("metric", [None, "learned"])
def test_names_are_judged_before_a_line_is_found_to_do(made, metric, monkeypatch):
    """The targets are a line, or tell by one: no map of the kernel is drawn."""
    monkeypatch.setattr(_drawn, "learn_metric", lambda *_, **__: pytest.fail("a metric was learnt"))
    y = X[:, 0] > 0 if made is FeatureLogistic else X[:, 0]
    for name in ("arccosine", "favor_sharp_asymmetric", "nystroem"):
        with pytest.raises(ParameterError, match=f"estimator must be 'auto' or one of trigonometric, .*; got '{name}'"):
            made(estimator=name, metric=metric).fit(X, y)
    with pytest.raises(ParameterError, match=r"projection must be one of .*; got 'gaussian'"):
        made(projection="gaussian", metric=metric).fit(X, y)


def test_return_std_is_true_or_false():
    process = FeatureGP(**GIVEN).fit(X, X[:, 0])
    for given in (np.ones(2), "yes", 1):
        with pytest.raises(ParameterError, match="return_std must be True or False; got"):
            process.predict(X, return_std=given)


def test_targets_whose_squares_are_beyond_float64():
    with pytest.raises(ParameterError, match="y must"):
        FeatureGP(**GIVEN).fit(X, np.full((30, 2), 1e300))


@pytest.mark.parametrize("made", [NystromFeatures(method=np.ones(2)), FeatureRegressor(loss=np.ones(2))])
def test_a_name_that_is_an_array_is_refused_by_the_fit(made):
    """scikit-learn asks what an estimator takes before that."""
    get_tags(made)
    with pytest.raises(ParameterError, match=r"(method|loss) must be one of"):
        made.fit(X, X[:, 0])


@pytest.mark.parametrize("made", [FeatureGP, FeatureRidge, ExactKernelRidge, FeatureRegressor])
def test_targets_are_numbers_whose_sums_are_floats(made):
    """Some had NaN for predictions, or an error that blamed the rows."""
    for wrong in (X[:, 0].astype(str), X[:, 0].astype("M8[s]")):
        with pytest.raises(DTypeError, match="y must hold real numbers; got"):
            made(lengthscale=1.0).fit(X, wrong)
    for size in (1e307, 1.7e308):
        with pytest.raises(ParameterError, match="y must be smaller: sums of its numbers"):
            made(lengthscale=1.0).fit(X, np.where(X[:, 0] > 0, size, size / 2))


@pytest.mark.parametrize("made", [ExactKernelRidge, FeatureLogistic, FeatureRegressor, FeatureSVC])
def test_one_ridge_in_a_list_is_that_ridge(made):
    y = X[:, 0] > 0 if is_classifier(made()) else X[:, 0]
    fits = (made(lengthscale=1.0, ridge=ridge, random_state=0).fit(X, y) for ridge in (0.5, [0.5], np.array(0.5)))
    once, *others = (fit.predict(X) for fit in fits)
    assert all(np.array_equal(once, other) for other in others)


@pytest.mark.parametrize("made", [FeatureClassifier, FeatureLogistic, FeatureSVC])
def test_labels_are_of_one_kind(made):
    with pytest.raises(DTypeError, match="y must hold labels of one kind"):
        made(lengthscale=1.0).fit(X, np.array(["a", 1] * 15, object))
