"""Pullbacks on the emulation against those of array operations in float64."""

import numpy as np
import pytest

from cuda_ops.cases import DTYPES, OPERAND_EPS, to64
from seam import PULLED, Normaliser, PeakedSum

CASES = [  # test_kinds.py has the derivatives of all kinds, and test_orders.py exp_pair in float32
    pytest.param(kind, dtype, marks=[] if (kind, dtype) == ("sincos", "bfloat16") else pytest.mark.slow)
    for dtype in DTYPES
    for kind in (*PULLED, "elementwise")
]
TOLERANCE = {dtype: 16 * eps + (2.0**-14 if dtype != "float64" else 2.0**-44) for dtype, eps in OPERAND_EPS.items()}


def wide(x):
    """An argument of an op with its arrays in float64."""
    if isinstance(x, (PeakedSum, Normaliser)):
        return type(x)(*map(to64, x))
    return to64(x) if hasattr(x, "get") and x.dtype.kind not in "bi" else x.get() if hasattr(x, "get") else x


def parts(found):
    """The arrays of a pullback, None where there is none."""
    for x in found:
        if isinstance(x, tuple):
            yield from parts(x)
        else:
            yield x


def differences(found, wanted, least=1e-3):
    """What came out, what is wanted, and the largest size of that or `least`, part by part."""
    for x, y in zip(parts(found), parts(wanted), strict=True):
        assert (x is None) == (y is None)
        if x is not None:
            assert x.shape == y.shape
            yield to64(x), to64(y), max(float(np.max(np.abs(to64(y)), initial=0.0)), least)


def agree(found, wanted, dtype, factor=1.0):
    least = 1e-3 if dtype in ("float32", "float64") else 0.3  # of 16 bits a difference of large terms has few
    for at, (x, y, size) in enumerate(differences(found, wanted, least)):
        assert np.isfinite(x).all(), at
        error = float(np.max(np.abs(x - y), initial=0.0)) / size
        assert error <= factor * TOLERANCE[dtype], f"part {at}: {error}"
