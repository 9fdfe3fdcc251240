"""The table behind "auto": its errors are those that maps make, and it says when none of them helps."""

from dataclasses import replace

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import ParameterError, ShapeError
from kernattn.features import recommend
from laws import arrays

K, P = ka.kernels, ka.projections
N, D = 40, 4
SYMMETRIC = set(ka.features.estimators(K.Softmax())) - {"favor_sharp_asymmetric"}


def data(size=1.0):
    return size * arrays(1, (N, D), dtype="float64")[0]


def weights(kernel, x):
    """Every pair, or for softmax every pair of two rows, each row of the kernel of size 1."""
    exact = kernel(x)
    if not isinstance(kernel, K.Softmax):
        return exact, np.ones((N, N))
    off = 1 - np.eye(N)
    return exact, off / np.sum(off * exact**2, axis=1, keepdims=True)


@pytest.mark.statistical
@pytest.mark.parametrize("kernel", [K.Gaussian(2.0), K.Softmax()], ids=["gaussian", "softmax"])
def test_errors_are_those_that_maps_make(kernel):
    x = data(0.3)
    exact, w = weights(kernel, x)
    table = recommend(kernel, x, 12)
    assert [choice.error for choice in table.choices] == sorted(choice.error for choice in table.choices)
    assert {choice.estimator for choice in table.choices} == SYMMETRIC
    for choice in table.choices:
        if "iid frequencies" in choice.reason:
            continue
        phi = ka.random_features(kernel, D, 12, choice.estimator, choice.projection, data=x)
        rng = np.random.default_rng(3)
        drawn = (f(x) @ f(x).T for f in (phi.redraw(rng) for _ in range(300)))
        squares = np.array([np.sum(w * (estimate - exact) ** 2) for estimate in drawn]) / np.sum(w * exact**2)
        z = (squares.mean() - choice.error**2) / (squares.std() / np.sqrt(len(squares)))
        assert abs(z) < 4.5, choice


@pytest.mark.parametrize("projection", ["iid", "orthogonal"])
@pytest.mark.parametrize("number", [12, 13])
@pytest.mark.parametrize("kernel", [K.Gaussian(), K.Softmax(), K.Matern(1.5)], ids=lambda k: type(k).__name__)
def test_auto_takes_the_first_row(kernel, number, projection):
    for size in (0.2, 1.0):
        best = recommend(kernel, data(size), number, [projection]).best
        auto = ka.random_features(kernel, D, number, projection=projection, data=data(size))
        assert type(auto) is ka.features.ESTIMATORS[best.estimator].cls
        by_name = ka.random_features(kernel, D, number, best.estimator, projection, data(size))
        np.testing.assert_array_equal(auto.omega, by_name.omega)


def test_uniform_attention():
    """Its error by hand; beaten at small norms, not at large ones, and then the table says so."""
    kernel = K.Softmax()
    x = data(0.5)
    exact, w = weights(kernel, x)
    rows = exact[w > 0].reshape(N, N - 1)
    by_hand = np.mean(np.var(rows, axis=1) / np.mean(rows**2, axis=1)) ** 0.5
    table = recommend(kernel, x, 256)
    assert table.uniform == pytest.approx(by_hand)
    assert not table.hopeless
    assert "No map estimates" not in str(table)
    far = recommend(kernel, data(4.0), 16)
    assert far.hopeless
    assert "No map estimates the kernel better than uniform rows" in str(far)
    assert recommend(K.Gaussian(), x, 16).uniform is None


def test_printed():
    table = recommend(K.Softmax(), data(), 16)
    lines = str(table).splitlines()
    assert lines[0].startswith("16 features; medians |x + y|^2")
    assert len([line for line in lines if "orthogonal" in line.lower()]) == len(SYMMETRIC)
    assert all(choice.reason in str(table) for choice in table.choices)


def test_what_a_kernel_cannot_take_is_left_out():
    assert {choice.projection for choice in recommend(K.Laplacian(), data(), 8).choices} == {P.Iid()}
    with pytest.raises(ParameterError, match="axis by axis"):
        recommend(K.Laplacian(), data(), 8, ["orthogonal"])
    walk = recommend(K.Gaussian(), data(), 8, ["kac"])
    assert all("predicted for iid frequencies" in choice.reason for choice in walk.choices)


def test_refusals():
    with pytest.raises(ParameterError, match="kernel must be one of"):
        recommend(K.Polynomial(2), data(), 8)
    for one in ("orthogonal", P.Iid()):
        with pytest.raises(ParameterError, match="projections must be a tuple or list"):
            recommend(K.Gaussian(), data(), 8, one)
    with pytest.raises(ParameterError, match="at least one"):
        recommend(K.Gaussian(), data(), 8, [])
    with pytest.raises(ShapeError, match="data"):
        recommend(K.Gaussian(), np.ones(3), 8)
    with pytest.raises(ParameterError, match="num_features"):
        recommend(K.Gaussian(), data(), 0)


def test_a_map_of_unknown_variance_is_ranked_last(monkeypatch):
    class Unknown(ka.features.Trigonometric):
        def variance(self, x, y):
            raise ka.errors.NoClosedForm("none")

    row = ka.features.ESTIMATORS["trigonometric"]
    monkeypatch.setitem(ka.features.ESTIMATORS, "unknown", replace(row, cls=Unknown))
    x = np.random.default_rng(2).standard_normal((20, 4))
    table = ka.features.recommend(ka.kernels.Gaussian(), x, 64)
    assert table.choices[-1].estimator == "unknown"
    assert table.choices[-1].error == np.inf
    assert not isinstance(ka.random_features(ka.kernels.Gaussian(), 4, 64, data=x), Unknown)
