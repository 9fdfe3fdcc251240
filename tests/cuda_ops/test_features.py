"""The kernel `features` on the emulation against the float64 oracle."""

import numpy as np
import pytest

import oracles
from cuda_ops.cases import CASES, OPERAND_EPS, array, specs, to64
from kernattn.ops._cuda.constants import two_parts
from seam import MapSpec

PROJECTED = ("elu1", "float32")  # usual here, and slow where the other ops meet it


@pytest.mark.parametrize(("kind", "dtype"), [PROJECTED, *(each for each in CASES if each.values != PROJECTED)])
def test_features(cupy, kind, dtype):
    from kernattn.ops.features.gpu import features

    wide = 70 if kind in ("exp", "elementwise") else 16  # projections over several tiles are those of all kinds
    for seed, (n, d, frequencies) in enumerate([(70, 5, 37), (3, wide, 16)]):
        rng = np.random.default_rng(seed)
        spec = specs(rng, kind, d, frequencies)
        x = array(cupy, rng.normal(size=(2, n, d)), dtype)
        phi = features(x, spec)
        assert isinstance(phi, cupy.ndarray)
        assert phi.dtype == x.dtype
        wanted = oracles.from_spec(to64(x), spec.kind, spec.omega, spec.row_weights, spec.offset, spec.amplitude)
        reach = oracles.reach(to64(x), spec.omega, spec.row_weights, spec.offset)
        tolerance = (OPERAND_EPS[dtype] + 2.0**-22 * (dtype != "float64")) * (4 + reach)
        np.testing.assert_allclose(to64(phi), wanted.values, rtol=0, atol=tolerance * np.exp(wanted.size).max())


def test_large_angles(cupy):
    from kernattn.ops.features.gpu import features

    signs = np.array([[1.0], [-1.0]])
    x = signs * np.concatenate([np.linspace(0, 2.0**24, 300), np.logspace(-3, 7, 300)])
    x = x.reshape(-1, 1).astype(np.float32)
    out = to64(features(cupy.asarray(x), MapSpec("sincos", np.ones((1, 1)))))
    exact = x.astype(np.float64)
    np.testing.assert_allclose(out, np.concatenate([np.cos(exact), np.sin(exact)], axis=1), atol=2e-7)
    endless = to64(features(cupy.asarray(np.float32([[1e9], [3e38]])), MapSpec("sincos", np.ones((1, 1)))))
    assert (np.abs(endless) <= 1).all()


@pytest.mark.parametrize(("kind", "bits"), [("bf16_t", 8), ("tf32_t", 11)])
def test_two_parts_of_a_matrix(kind, bits):
    omega = np.random.default_rng(0).normal(size=(5, 7)) * 10.0 ** np.arange(-3, 4)
    parts = two_parts(omega, kind)
    high, low = ((parts.astype(np.uint32) << 16).view(np.float32) if kind == "bf16_t" else parts).astype(np.float64)
    assert (np.abs(high - omega) <= 2.0**-bits * np.abs(omega)).all()
    assert (np.abs(high + low - omega) <= (2.0 ** (-2 * bits) + 2.0**-24) * np.abs(omega)).all()
    for part in (high, low):
        mantissas = np.frexp(part)[0] * 2.0**bits
        np.testing.assert_array_equal(mantissas, np.round(mantissas))
