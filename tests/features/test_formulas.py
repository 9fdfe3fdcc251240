"""Every map's features against its formula, in every kind of array."""

import numpy as np
import pytest

import kernattn as ka
import maps
import oracles
from laws import arrays
from xp import dtype_name, to_numpy

TOLERANCE = {"float16": 4e-3, "bfloat16": 4e-2, "float32": 2e-5, "float64": 1e-13}
ELEMENTWISE = {"elu1": oracles.elu1, "relu": oracles.relu, "exp": oracles.exponential}
FUNCTIONS = {
    "relu": lambda u: np.maximum(u, 0),
    "exp": np.exp,
    "sigmoid": lambda u: 1 / (1 + np.exp(-u)),
    "own": maps.cube,
    "abs": np.abs,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "square": np.square,
    "elu1": lambda u: np.where(u > 0, u + 1, np.exp(np.minimum(u, 0))),
}


def formula(name, x):
    """Features by the definition of the map, from its draw."""
    phi = maps.make(name)
    head, _, tail = name.partition("-")
    if head in ELEMENTWISE:
        return ELEMENTWISE[head](x).values
    if head == "generalized":
        return FUNCTIONS[tail](x @ phi.omega.T) / np.sqrt(maps.FEATURES)
    c = maps.KERNELS[tail]().input_scale(maps.DIM)
    parameters = {"phase": lambda: (phi.phase,), "optimal_positive": lambda: (phi.tilt,)}.get(head, tuple)()
    return getattr(oracles, head)(x, phi.omega, c, *parameters, softmax=tail == "softmax").values


DEFINED = [name for name in maps.MAPS if name != "polynomial"]


@pytest.mark.parametrize("name", DEFINED)
def test_features_are_the_formula(name, xp):
    for dtype in xp.dtypes:
        (x,) = arrays(1, (2, 7, maps.DIM), dtype=dtype)
        with xp.wide():
            got = maps.make(name)(xp.asarray(x))
            assert xp.holds(got)
            assert dtype_name(got) == dtype
            wanted = formula(name, to_numpy(x))
            np.testing.assert_allclose(
                to_numpy(got), wanted, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], err_msg=dtype
            )


@pytest.mark.parametrize("name", maps.MAPS)
def test_scaled_features_are_the_features(name):
    phi = maps.make(name)
    (x,) = arrays(2, (3, 6, maps.DIM), dtype="float64")
    values, log_scale = phi.scaled(x)
    np.testing.assert_allclose(values * np.exp(log_scale), phi(x), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(phi.query(x), phi(x))
    np.testing.assert_array_equal(phi.key(x), phi(x))
    per_feature = name in maps.EXPONENTIAL or name == "generalized-exp"
    m = phi(x).shape[-1]
    assert values.shape == (3, 6, 1 if per_feature else m)
    assert log_scale.shape == (3, 6, m if per_feature else 1)
    if per_feature:
        assert (values == 1).all()


@pytest.mark.parametrize("name", [*maps.EXPONENTIAL, "generalized-exp"])
def test_log_features_have_no_limit(name):
    (x,) = arrays(3, (4, maps.DIM), dtype="float32", scale=300.0)
    values, log_scale = maps.make(name).scaled(x)
    assert np.isfinite(log_scale).all()
    assert log_scale.dtype == np.float32
    assert (values == 1).all()


def test_elu1_of_large_negative_inputs_in_narrow_dtypes():
    """elu() + 1 would round to 0."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    for dtype, x, rtol in (
        (ml_dtypes.bfloat16, -8, 1e-2),
        (ml_dtypes.bfloat16, -40, 1e-2),
        (np.float16, -8, 1e-3),
        (np.float32, -40, 1e-5),
    ):
        got = ka.features.elu1()(np.array([[x]], dtype=dtype)).astype(np.float64)
        np.testing.assert_allclose(got, np.exp(x), rtol=rtol)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_polynomial_is_exact(degree, xp):
    x, y = arrays(4, (2, 3, 4), (2, 6, 4), dtype="float64")
    with xp.wide():
        phi = ka.features.polynomial(degree)
        got = to_numpy(xp.whole(phi)(xp.asarray(x))) @ np.swapaxes(to_numpy(xp.whole(phi)(xp.asarray(y))), -1, -2)
    np.testing.assert_allclose(got, (x @ np.swapaxes(y, -1, -2)) ** degree, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("f", sorted(set(FUNCTIONS) - {"own"}))
def test_generalized_functions(f):
    (x,) = arrays(5, (4, 3), dtype="float64")
    phi = ka.features.generalized(f, 3, 8, scale=0.5, rng=4)
    np.testing.assert_allclose(phi(x), FUNCTIONS[f](x @ phi.omega.T) / np.sqrt(8), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", maps.RANDOM)
def test_many_features_approach_the_kernel(name):
    estimator, _, kernel = name.partition("-")
    kernel = maps.KERNELS[kernel]()
    x, y = arrays(6, (6, maps.DIM), (6, maps.DIM), dtype="float64", scale=0.5)
    phi = ka.random_features(kernel, maps.DIM, 40_000, estimator=estimator, rng=3)
    deviation = np.sqrt(phi.variance(x[:, None, :], y[None, :, :]))
    assert (np.abs(phi(x) @ phi(y).T - kernel(x, y)) < 4.5 * deviation).all()


def test_optimal_parameter():
    (x,) = arrays(7, (40, 6), dtype="float64", scale=1.3)
    x = x + 0.5
    for kernel, c in ((ka.kernels.Softmax(), 6**-0.25), (ka.kernels.Gaussian(2.0), 0.5)):
        phi = ka.random_features(kernel, 6, 8, estimator="optimal_positive", data=x, rng=0)
        pairs = (c * x)[:, None] + (c * x)[None]
        square = np.mean(np.sum(pairs**2, axis=-1))
        # the mean over independent rows differs from the mean over all pairs by the diagonal, a fortieth
        assert abs(phi.tilt / oracles.optimal_parameter(square, 6) - 1) < 0.03


def test_the_optimal_parameter_beats_its_neighbours():
    x = np.full((1, 4), 0.75)
    phi = ka.random_features(ka.kernels.Gaussian(), 4, 8, estimator="optimal_positive", projection="iid", data=x, rng=0)
    from dataclasses import replace

    least = phi.variance(x, x)
    for factor in (0.8, 1.25):
        assert replace(phi, tilt=factor * phi.tilt).variance(x, x) > least
