"""The kernel `features` on the emulation against the float64 oracle."""

import numpy as np
import pytest

import oracles
from cuda_ops.cases import DTYPES, KINDS, OPERAND_EPS, array, specs, to64


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
