"""Every map and what is known of it at the ends of the floats: no warning, no NaN, infinite only beyond the dtype."""

import contextlib

import numpy as np
import pytest

import kernattn as ka
import maps
from kernattn.errors import NoClosedForm, ParameterError

SIZES = {
    "float32": [1e-45, 1e-37, 1e-20, 1e10, 1e19, 1e30, 1e38],
    "float64": [1e-320, 1e-200, 1e38, 1e154, 1e300, 1e308],
}
NAMES = [*maps.MAPS, *maps.OTHERS]


def rows(name, dtype, size):
    """Pairs of rows: any two, one and the same, one and its opposite, one and nothing."""
    x, y = np.random.default_rng(3).uniform(-1, 1, (2, 5, maps.DIM))
    if "chi2" in name:
        x, y = np.abs(x), np.abs(y)
    y[1], y[2], y[3] = x[1], x[2] if "chi2" in name else -x[2], 0
    return (x * size).astype(dtype), (y * size).astype(dtype)


@pytest.mark.parametrize("dtype", SIZES)
@pytest.mark.parametrize("name", NAMES)
def test_features_and_closed_forms(name, dtype):
    phi = maps.make(name)
    calls = {
        "query": lambda x, y: phi.query(x, backend="reference"),
        "key": lambda x, y: phi.key(x, backend="reference"),
        "scaled": lambda x, y: phi.scaled(x).values,
        "log scale": lambda x, y: phi.scaled(x).log_scale,
        "mean": phi.mean,
        "bias": phi.bias,
        "variance": phi.variance,
        "number": lambda x, y: np.asarray(phi.num_features_for(x, y, error=0.1, probability=0.9)),
    }
    own = name == "generalized-own"  # a function that overflows: its features are refused, in words
    for size in SIZES[dtype]:
        x, y = rows(name, dtype, size)
        for form, call in calls.items():
            if (
                own
                and size > (1e12 if dtype == "float32" else 1e100)
                and form in ("query", "key", "scaled", "log scale")
            ):
                with pytest.raises(ParameterError, match="f must give finite numbers"):
                    call(x, y)
                continue
            with contextlib.suppress(NoClosedForm, *[ParameterError] * (form == "number")):
                found = call(x, y)
                assert not np.isnan(found).any(), (form, size)
                assert form != "variance" or (found >= 0).all(), size


NYSTROM = {
    "gaussian": ka.kernels.Gaussian(2.0),
    "heavy tail": ka.kernels.RationalQuadratic(0.1),
    "matern": ka.kernels.Matern(0.7),
    "softmax": ka.kernels.Softmax(),
    "polynomial": ka.kernels.Polynomial(3, coef0=1.0),
    "neurons": ka.kernels.ArcCosine(2),
    "composite": 2 * ka.kernels.Softmax() * ka.kernels.ArcCosine(1) + ka.kernels.Gaussian(),
}


@pytest.mark.parametrize("name", NYSTROM)
def test_far_rows_do_not_move_the_others_of_nystrom(name):
    data, x = np.random.default_rng(1).standard_normal((2, 40, 5))
    phi = ka.features.nystrom(data, NYSTROM[name], 6, rng=0)
    wanted = phi(x)
    for size in (1e20, 1e200):
        far = x.copy()
        far[7] *= size
        np.testing.assert_array_equal(np.delete(phi(far), 7, 0), np.delete(wanted, 7, 0))
        values, log_scale = phi.scaled(far)
        assert np.isfinite(values).all()
        assert (log_scale < np.inf).all()  # -inf for a row of zeros


@pytest.mark.parametrize("far", [16.0, 26.0])
@pytest.mark.parametrize("dtype", SIZES)
def test_nystrom_of_any_kernel_that_float64_holds(dtype, far):
    """Kernels of 1e111 and 1e293: more than the other numbers of a map may be, and than float32 holds."""
    kernel, data = ka.kernels.Softmax(scale=1.0), np.array([[far, 0.0], [0.0, far]])
    phi = ka.features.nystrom(data, kernel, landmarks=np.array([0, 1]), rng=0)
    assert phi.eigenvalues[-1] > 1e100
    wanted = kernel(data)
    np.testing.assert_allclose(phi(data) @ phi(data).T, wanted, rtol=1e-9, atol=1e-9 * np.max(wanted))
    x, v = data.astype(dtype), np.array([[1.0], [5.0]], dtype)
    np.testing.assert_allclose(ka.linear_attention(x, x, v, phi), v, rtol=1e-5)
    with pytest.raises(ParameterError, match="on the data it is inf"):
        ka.features.nystrom(2 * data, kernel, 2, rng=0)
    with pytest.raises(ParameterError, match="landmarks must have a kernel matrix that float64 holds"):
        ka.features.nystrom(data, kernel, landmarks=2 * data, rng=0)


@pytest.mark.parametrize("entry", [14.0, 1e3, 1e300])
@pytest.mark.parametrize("projection", ["iid", "orthogonal"])
@pytest.mark.parametrize("estimator", ["trigonometric", "phase"])
def test_the_mean_of_far_rows_is_the_kernel(estimator, projection, entry):
    """e^(-|x - y|^2 / 2) alone is 0 in float64, and e^(|x|^2 / 2) infinite."""
    phi = ka.random_features(ka.kernels.Softmax(), 64, 8, estimator, projection, rng=0)
    x, y = np.full((1, 64), entry), np.zeros((1, 64))
    assert phi.mean(x, y) == 1
    assert phi.bias(x, y) == 0
    assert phi.variance(x, y) == np.inf


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith(("pos", "hyper", "trig", "phase", "opt"))])
def test_the_moments_of_nan_are_nan(name):
    x, y = rows(name, "float64", 1.0)
    x[0, 0] = np.nan
    phi = maps.make(name)
    for found in (phi.mean(x, y), phi.bias(x, y), phi.variance(x, y)):
        np.testing.assert_array_equal(np.isnan(found), [True] + [False] * 4)


SCALES = (1e-29, 1e-20, 1e20, [1e-20, 1e20])
EXPONENTIAL = ("positive", "hyperbolic", "optimal_positive", "favor_sharp")


@pytest.mark.parametrize("lengthscale", SCALES, ids=str)
@pytest.mark.parametrize("estimator", EXPONENTIAL)
def test_lengthscales_whose_squares_float32_does_not_hold(estimator, lengthscale, backend):
    rows, v = np.random.default_rng(0).uniform(-1, 1, (2, 6, 2))
    x = rows * lengthscale
    phi = ka.random_features(ka.kernels.Gaussian(lengthscale), 2, 8, estimator, "iid", x, rng=0)
    wanted = ka.linear_attention(x, x, v, phi, backend="reference")
    unit = ka.random_features(ka.kernels.Gaussian(), 2, 8, estimator, "iid", rows, rng=0)
    np.testing.assert_allclose(wanted, ka.linear_attention(rows, rows, v, unit, backend="reference"), rtol=1e-9)
    x, v = x.astype(np.float32), v.astype(np.float32)
    np.testing.assert_allclose(ka.linear_attention(x, x, v, phi, backend=backend.name), wanted, atol=2e-5)


def test_maps_beyond_float32_take_float64_rows(backend):
    x = np.random.default_rng(0).uniform(-1, 1, (6, 2))
    phi = ka.random_features(ka.kernels.Gaussian(1e-25), 2, 8, "favor_sharp", "iid", x, rng=0)
    assert np.isfinite(ka.linear_attention(x, x, x, phi, backend=backend.name)).all()
    low = x.astype(np.float32)
    calls = {
        "q": lambda: ka.linear_attention(low, low, low, phi, backend=backend.name),
        "k": lambda: ka.key_state(low, low, phi, backend=backend.name),
        "x": lambda: phi(low, backend=backend.name),
        "like": lambda: ka.initial_state(phi, (), 2, like=low),
    }
    for name, call in calls.items():
        with pytest.raises(ka.errors.DTypeError, match=f"^{name} must be float64 for a map whose numbers, up to .*e"):
            call()
    both = phi + phi
    with pytest.raises(ka.errors.DTypeError, match="must be float64 for a map"):
        ka.linear_attention(low, low, low, both, backend=backend.name)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["elu1", "relu"])
def test_nan_goes_through_maps_without_frequencies(name, backend):
    x = np.ones((40, 3), "f4")
    x[7, 1], x[9, 2] = np.nan, -1.0
    phi = getattr(ka.features, name)()
    np.testing.assert_array_equal(np.isnan(phi(x, backend=backend)), np.isnan(x))
    out = ka.linear_attention(x, x, x, phi, backend=backend)
    assert np.isnan(out).all()  # a key that all rows see
