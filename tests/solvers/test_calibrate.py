"""Widths of a process by rows that are left out, against refits without each row."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtri

import kernattn as ka
from kernattn.errors import DTypeError, ParameterError, ShapeError

RNG = np.random.default_rng(0)
X, NEW = RNG.standard_normal((30, 2)), RNG.standard_normal((7, 2))
Y = np.column_stack([np.sin(X[:, 0]), X[:, 1] ** 2]) + 0.2 * RNG.standard_normal((30, 2))
KERNEL = ka.kernels.Gaussian(1.5)
NYSTROM = ka.features.nystrom(X, KERNEL, 8, method="kmeans", rng=0)
RANDOM = ka.random_features(KERNEL, dim=2, num_features=12, rng=0)
NOISE, AMPLITUDE = np.array([0.3, 0.2]), np.array([1.5, 2.0])


def fitted(phi, x=X, y=Y, weights=None):
    return ka.solvers.gp(ka.solvers.moments(x, phi, y=y, weights=weights), noise=NOISE, amplitude=AMPLITUDE)


@pytest.mark.parametrize("coverage", [0.6, 0.9])
@pytest.mark.parametrize("phi", [NYSTROM, RANDOM], ids=["nystrom", "random"])
def test_refits(phi, coverage):
    process = fitted(phi)
    found = ka.solvers.calibrate(process, x=X, y=Y, coverage=coverage)
    sizes = []
    for i in range(30):
        less, row = fitted(phi, np.delete(X, i, 0), np.delete(Y, i, 0)), X[i : i + 1]
        sizes.append(np.abs(Y[i] - less.mean(row)[0]) / np.sqrt(less.variance(row)[0] + NOISE**2))
    rank = int(np.ceil(coverage * 31))
    scale = np.sort(sizes, axis=0)[rank - 1] / ndtri((1 + coverage) / 2)
    np.testing.assert_allclose(found.noise, scale * NOISE, rtol=1e-8)
    exact = ka.solvers.calibrate(process, x=X, y=Y, coverage=Fraction(coverage))
    np.testing.assert_array_equal(exact.noise, found.noise)
    np.testing.assert_allclose(found.amplitude, scale * AMPLITUDE, rtol=1e-8)
    np.testing.assert_allclose(found.mean(NEW), process.mean(NEW), rtol=1e-9)
    np.testing.assert_allclose(found.variance(NEW), scale**2 * process.variance(NEW), rtol=1e-8)


def test_the_estimator():
    """Intervals are those of the calibrated process, about the mean of the targets that were fitted."""
    pytest.importorskip("sklearn")
    from kernattn.sklearn import FeatureGP

    for y in (Y + 7.0, Y[:, 1] + 7.0):
        model = FeatureGP(lengthscale=1.5, num_features=12, noise=0.3, amplitude=1.0, random_state=0).fit(X, y)
        low, high = model.predict_interval(NEW, X, y, coverage=0.8)
        one = ka.solvers.calibrate(model.solution_, x=X, y=y - model.y_mean_, coverage=0.8)
        noise = one.noise if y.ndim == 2 else one.noise[0]
        np.testing.assert_allclose((low + high) / 2, model.predict(NEW), rtol=1e-9)
        np.testing.assert_allclose((high - low) / 2, ndtri(0.9) * np.sqrt(one.variance(NEW) + noise**2), rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-30, 1e30])
def test_units_of_which_float32_has_no_squares(unit):
    """Deviations are numbers of float32 where variances are not."""
    pytest.importorskip("sklearn")
    from kernattn.sklearn import FeatureGP

    x, y = X.astype("f4"), unit * Y[:, 1]
    given = {"lengthscale": 1.5, "num_features": 12, "random_state": 0}
    model = FeatureGP(noise=0.3 * unit, amplitude=unit, **given).fit(x, y)
    plain = FeatureGP(noise=0.3, amplitude=1.0, **given).fit(x, Y[:, 1])
    np.testing.assert_allclose(model.predict(x, True)[1] / unit, plain.predict(x, True)[1], rtol=1e-5)
    low, high = model.predict_interval(x, x, y, coverage=0.8)
    want = plain.predict_interval(x, x, Y[:, 1], coverage=0.8)
    np.testing.assert_allclose((high - low) / unit, want.high - want.low, rtol=1e-4)
    assert low.dtype == np.float32
    far = FeatureGP(noise=0.3 * unit, amplitude=unit, **given).fit(x, y + 1e7 * unit)
    np.testing.assert_array_equal(far.predict(x), far.predict(x.astype(float)).astype("f4"))
    beyond = FeatureGP(noise=0.3, amplitude=1.0, **given).fit(x, Y[:, 1] + 1e40)
    assert np.all(np.isinf(beyond.predict(x)))


def test_refusals():
    process = fitted(NYSTROM)
    for given in ({"x": X[:-1], "y": Y[:-1]}, {"y": Y[::-1].copy()}, {"y": Y[:, 0]}, {"x": X + 1.0}):
        with pytest.raises(ParameterError, match="x and y must be the rows that made the moments"):
            ka.solvers.calibrate(process, **({"x": X, "y": Y} | given))
    with pytest.raises(ParameterError, match="without weights"):
        ka.solvers.calibrate(fitted(NYSTROM, weights=np.arange(1.0, 31)), x=X, y=Y)
    for coverage, words in ((1.0, "coverage must be between 0 and 1"), (0.99, "at most 0.967742 with 30 rows")):
        with pytest.raises(ParameterError, match=words):
            ka.solvers.calibrate(process, x=X, y=Y, coverage=coverage)
    with pytest.raises(ShapeError, match=r"x must be \(n, d\)"):
        ka.solvers.calibrate(process, x=X[None], y=Y)
    with pytest.raises(DTypeError, match="process must be a GaussianProcess"):
        ka.solvers.calibrate(ka.solvers.ridge(ka.solvers.moments(X, NYSTROM, y=Y)), x=X, y=Y)
