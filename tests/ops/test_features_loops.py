"""Compiled features against the formulas in float64."""

import numpy as np
import pytest

import oracles
from kernattn.ops.features import reference
from seam import KINDS, MapSpec

pytest.importorskip("numba")

from kernattn.ops._numba.tiles.stream import STREAMED
from kernattn.ops.features.cpu import features

EPS = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}


def spec_of(kind, d, frequencies, elementwise):
    rng = np.random.default_rng(0)
    omega = None if elementwise else rng.standard_normal((frequencies, d)) * d**-0.5
    m = (d if elementwise else frequencies) * KINDS[kind].parts
    weights = None if KINDS[kind].scale == "none" else rng.uniform(-1, 1, d) / d
    return MapSpec(kind, omega, weights, rng.uniform(-2, 2, m) if KINDS[kind].offset != "none" else None, 0.7)


@pytest.mark.parametrize("elementwise", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [((5,), 11), ((3, 70, 16), 33), ((130, 9), 64)], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_formula(kind, shape, dtype, elementwise):
    (*lead, d), frequencies = shape
    spec = spec_of(kind, d, frequencies, elementwise)
    x = np.random.default_rng(1).standard_normal((*lead, d)).astype(dtype)
    phi = features(x, spec)
    wanted = oracles.from_spec(x.astype("f8"), kind, spec.omega, spec.row_weights, spec.offset, spec.amplitude)
    assert phi.dtype == x.dtype
    scale = np.exp(wanted.size)
    assert (np.abs(phi - wanted.values) <= 40 * EPS[dtype] * (scale + 0.01)).all()


@pytest.mark.parametrize("elementwise", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_elu1_is_the_reference_down_to_the_least_number(dtype, elementwise):
    info = np.finfo(dtype)
    x = np.random.default_rng(2).uniform(np.log(info.tiny) - 20, 2, (50, 33)).astype(dtype)
    spec = MapSpec("elu1", None if elementwise else np.eye(33))
    wanted = np.where(x > 0, x + 1, np.exp(x.astype(np.longdouble)))
    for phi, units in ((features(x, spec), 2), (reference.features(x, spec), 100)):  # which rounds logarithms
        assert (np.abs(phi - wanted) <= units * info.eps * wanted + 2 * info.smallest_subnormal).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["cos", "sincos"])
def test_phases_beyond_the_range_reduction(kind, dtype):
    """A long way round the circle: the library's own cosine takes over."""
    x = np.array([[0.5, 1e4, -3e7, 4e12, -1e15]], dtype).T
    phi = features(np.hstack([x, np.ones_like(x)]), MapSpec(kind, np.eye(2), offset=np.zeros(2)))
    assert np.abs(phi[:, 0] - np.cos(x[:, 0].astype("f8"))).max() < 4 * np.finfo(dtype).eps
    assert np.abs(phi[:, 1] - np.cos(1.0)).max() < 4 * np.finfo(dtype).eps


def test_inputs_of_any_layout_are_read_and_not_written():
    spec = spec_of("sincos", 6, 10, elementwise=False)
    x = np.random.default_rng(2).standard_normal((20, 4, 6))
    wanted = features(x, spec)
    wide = np.zeros((20, 4, 12))
    wide[..., ::2] = x
    for laid in (np.asfortranarray(x), wide[..., ::2], x[::-1][::-1]):
        laid.flags.writeable = False
        np.testing.assert_array_equal(features(laid, spec), wanted)
        np.testing.assert_array_equal(laid, x)


def test_nan_and_infinity_stay_in_their_rows():
    spec = spec_of("elu1", 4, 8, elementwise=False)
    x = np.random.default_rng(3).standard_normal((30, 4)).astype("f4")
    clean = features(x, spec)
    x[7], x[21, 2] = np.nan, np.inf
    dirty = features(x, spec)
    others = np.delete(np.arange(30), [7, 21])
    np.testing.assert_array_equal(dirty[others], clean[others])
    assert np.isnan(dirty[7]).all()


@pytest.mark.parametrize("kind", ["sincos", "exp"])
def test_no_worse_than_the_composed_path(kind):
    spec = spec_of(kind, 32, 64, elementwise=False)
    x = np.random.default_rng(4).standard_normal((500, 32)).astype("f4")
    wanted = oracles.from_spec(x.astype("f8"), kind, spec.omega, spec.row_weights, spec.offset, spec.amplitude).values
    ours, composed = (np.sqrt(np.mean((phi - wanted) ** 2)) for phi in (features(x, spec), reference.features(x, spec)))
    assert ours < 1.5 * composed


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("frequencies", [16, 37, 601])
def test_a_result_beyond_the_caches_is_that_of_its_parts(frequencies, dtype):
    """Written past the caches, from addresses of any alignment."""
    spec = spec_of("sincos", 3, frequencies, elementwise=False)
    rows = 2 * STREAMED // (spec.num_features_of(3) * np.dtype(dtype).itemsize)
    x = np.random.default_rng(3).standard_normal((rows, 3)).astype(dtype)
    phi = features(x, spec)
    for low in range(0, rows, rows // 3):
        np.testing.assert_array_equal(phi[low : low + 100], features(x[low : low + 100], spec))


@pytest.mark.parametrize("elementwise", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_features_at_the_ends_of_the_floats(kind, dtype, elementwise):
    """Finite where the feature is; infinite, and never NaN, where it is beyond its dtype."""
    rng, largest = np.random.default_rng(3), float(np.finfo(dtype).max)
    for size in (1e10, 1e19, 1e25, largest / 4) if dtype == "float32" else (1e150, 1e160, largest / 4):
        x = (rng.uniform(-1, 1, (9, 6)) * size).astype(dtype)
        for weight in (-0.5, 0.0, 0.5):
            omega = None if elementwise else rng.standard_normal((7, 6))
            spec = MapSpec(kind, omega, np.full(6, weight) if weight and KINDS[kind].scale != "none" else None)
            phi = features(x, spec)
            e = np.frexp(size)[1]
            unit = np.ldexp(x.astype("f8"), -e)
            u = unit if elementwise else unit @ omega.T  # over 2^e
            if KINDS[kind].scale == "none":
                with np.errstate(over="ignore"):
                    wanted = np.ldexp(np.maximum(u, 0), e).astype(dtype)
                np.testing.assert_allclose(phi, wanted, rtol=1e-5, atol=1e-6 * size)
                continue
            assert not np.isnan(phi).any()
            row = np.ldexp(weight * np.sum(unit**2, axis=-1, keepdims=True), e) + 0 * u  # over 2^e
            if KINDS[kind].bounded:
                limits = {-0.5: phi == 0, 0.0: np.abs(phi) <= 1 + 1e-6, 0.5: np.isinf(phi)}
                assert limits[weight].all()
                continue
            log = row + u if KINDS[kind].parts == 1 else np.concatenate([row + u, row - u], axis=-1)
            assert (phi[log < 0] == 0).all()
            assert np.isposinf(phi[log > 0]).all()


def test_a_log_scale_that_overflows_before_the_feature_does():
    x = np.array([[89.0, 0.0]], np.float32)
    phi = features(
        x, MapSpec("sincos", np.array([[0.0, 1.0], [np.pi / 2 / 89, 0.0]]), np.array([1 / 89, 0.0]), None, 0.5)
    )
    np.testing.assert_allclose(phi[0, [0, 3]], 0.5 * np.exp(89.0), rtol=1e-5)
    assert phi[0, 2] == 0
