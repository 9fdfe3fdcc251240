"""The kernel `features` on the emulation against the float64 oracle."""

import numpy as np
import pytest

import oracles
from cuda_ops.cases import DTYPES, KINDS, OPERAND_EPS, array, specs, to64
from kernattn.ops.spec import MapSpec


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_features(cupy, kind, dtype):
    from kernattn.ops.features.gpu import features

    for seed, (n, d, frequencies) in enumerate([(70, 5, 37), (3, 70, 16)]):
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
