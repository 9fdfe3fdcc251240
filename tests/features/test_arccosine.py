"""Random neurons: unbiased for the arc-cosine kernels, and of the variance that they say."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import NoClosedForm, ParameterError
from laws import arrays
from saved import reloaded
from xp import dtype_name, to_numpy

K, P = ka.kernels, ka.projections
D, M, DRAWS = 4, 8, 5000


def pairs():
    """Equal, near, orthogonal, far and opposite."""
    x = np.array([[1, 2, 0, -1], [0.3, -1, 0.5, 2], [1, 0, 0, 0], [1, 1, 1, 1], [1, 0, 1, 0]])
    y = np.array([[1, 2, 0, -1], [0.5, -0.8, 0.1, 1.5], [0, 2, 0, 0], [-1, -1, -0.8, 0.5], [-2, 0, -2, 0]])
    return x, y


@pytest.mark.statistical
@pytest.mark.parametrize(
    "projection", ["iid", "orthogonal", P.Iid(norms="sqrt_d"), P.Orthogonal(norms="sqrt_d"), "simplex"], ids=str
)
@pytest.mark.parametrize("order", [0, 1, 2])
def test_mean_and_variance(order, projection):
    kernel, (x, y) = K.ArcCosine(order), pairs()
    phi = ka.random_features(kernel, D, M, projection=projection, rng=0)
    mean = phi.mean(x, y)
    np.testing.assert_allclose(phi.bias(x, y), mean - kernel.pairs(x, y), atol=1e-12)
    if "sqrt_d" not in str(projection) or order < 2:
        np.testing.assert_allclose(phi.bias(x, y), 0, atol=1e-12)  # order 1 needs but E r^2 = d
    omega = P.resolve(projection).draw(M * DRAWS, D, rng=5)
    u, v = omega @ x.T, omega @ y.T
    terms = 2 * np.where((u > 0) & (v > 0), (u * v) ** order, 0.0)
    estimates = terms.reshape(DRAWS, M, -1).mean(axis=1)
    opposite = 4  # never both positive
    assert (estimates[:, opposite] == 0).all()
    np.testing.assert_allclose(mean[opposite], 0, atol=1e-12)
    spread = np.maximum(estimates.std(axis=0), 1e-12) / np.sqrt(DRAWS)
    assert (np.abs(estimates.mean(axis=0) - mean) / spread < 4.5).all()
    if phi.projection.pairs(M, D):
        with pytest.raises(NoClosedForm, match="'iid' there is one"):
            phi.variance(x, y)
        return
    squares = (estimates - estimates.mean(axis=0)) ** 2
    spread = np.maximum(squares.std(axis=0), 1e-12) / np.sqrt(DRAWS)
    assert (np.abs(squares.mean(axis=0) - phi.variance(x, y)) / spread < 4.5).all()


@pytest.mark.parametrize("order", [0, 1, 2])
def test_features_are_neurons(order, xp):
    phi = ka.random_features(K.ArcCosine(order), D, M, "arccosine", rng=3)
    (x,) = arrays(1, (2, 5, D))
    u = x @ phi.omega.T
    wanted = np.sqrt(2 / M) * np.where(u > 0, u**order, 0.0)
    got = phi(xp.asarray(x))
    assert xp.holds(got)
    assert dtype_name(got) == "float32"
    np.testing.assert_allclose(to_numpy(got), wanted, rtol=1e-4, atol=1e-5)
    assert (phi.spec is not None) == (order == 1), "the ops fuse rectified linear units"


def test_a_row_of_zeros_has_no_features():
    for order in (0, 1, 2):
        phi = ka.random_features(K.ArcCosine(order), D, M, rng=0)
        assert (phi(np.zeros((1, D))) == 0).all()
        np.testing.assert_array_equal(phi.mean(np.zeros(D), np.ones(D)), 0)


def test_redraw_and_files(tmp_path):
    (x,) = arrays(1, (5, D), dtype="float64")
    for order in (0, 1, 2):
        phi = ka.random_features(K.ArcCosine(order), D, M, projection=P.Orthogonal("gram_schmidt"), rng=3)
        np.testing.assert_array_equal(phi.redraw(4)(x), phi.redraw(4)(x))
        assert reloaded(phi, tmp_path, x).fingerprint != phi.redraw(4).fingerprint


def test_estimators_of_other_kernels_are_refused():
    for estimator in ("trigonometric", "positive", "exact"):
        with pytest.raises(ParameterError, match="one of arccosine for ArcCosine"):
            ka.random_features(K.ArcCosine(), D, M, estimator, rng=0)
