"""The kernel `gram` on the emulation against the sums as written."""

import numpy as np
import pytest

from cuda_ops.cases import DTYPES, OPERAND_EPS, array, features_of, specs, to64

CASES = [(kind, "float32") for kind in ("exp_pair", "sincos", "elementwise", None)] + [("exp", x) for x in DTYPES[1:]]


@pytest.mark.parametrize(("kind", "dtype"), CASES)
def test_gram(cupy, kind, dtype):
    from kernattn.ops.gram.gpu import gram

    rng = np.random.default_rng(0)
    spec = None if kind is None else specs(rng, kind, 5, 37)
    for n, c in ((70, 35), (3, 0)):
        x, y = (array(cupy, 0.5 * rng.normal(size=(2, n, columns)), dtype) for columns in (5, c))
        phi = to64(x) if spec is None else features_of(to64(x), spec).values
        outer, moment = gram(x, y, spec)
        eps = (4 * OPERAND_EPS[dtype] + (2.0**-20 if dtype != "float64" else 0)) * n
        assert outer.dtype == moment.dtype == ("float64" if dtype == "float64" else "float32")
        np.testing.assert_allclose(
            to64(outer), np.swapaxes(phi, -1, -2) @ phi, rtol=eps, atol=eps * np.abs(phi).max() ** 2
        )
        wanted = np.swapaxes(phi, -1, -2) @ to64(y)
        np.testing.assert_allclose(to64(moment), wanted, rtol=eps, atol=eps * np.abs(phi).max() * 3)
        np.testing.assert_array_equal(to64(outer), np.swapaxes(to64(outer), -1, -2))
