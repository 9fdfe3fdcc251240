"""Inputs for the kernels: specs of every kind, arrays of every dtype, and how closely each dtype is met."""

import ml_dtypes
import numpy as np
import pytest

import oracles
from seam import KINDS as ROWS
from seam import MapSpec

DTYPES = ("float32", "float64", "bfloat16", "float16")
KINDS = (*ROWS, "elementwise")
CASES = [  # every kind, and every dtype; each in each, and projections before elu1, where time is given
    pytest.param(kind, dtype, marks=[] if usual else pytest.mark.slow)
    for dtype in DTYPES
    for kind in KINDS
    for usual in [kind == "exp" or (dtype == "float32" and kind != "elu1")]
]
OPERAND_EPS = {
    "float32": 2.0**-24,
    "float64": 2.0**-50,
    "bfloat16": 2.0**-8,
    "float16": 2.0**-11,
}  # of features in products


def dtype_of(name):
    return ml_dtypes.bfloat16 if name == "bfloat16" else np.dtype(name)


def array(cupy, x, dtype):
    """An array of the stand-in."""
    return cupy.asarray(np.asarray(x).astype(dtype_of(dtype)))


def to64(x):
    """An array of the stand-in, or of NumPy, as float64 NumPy."""
    return (x.get() if hasattr(x, "get") else np.asarray(x)).astype(np.float64)


def specs(rng, kind, d, frequencies):
    """A map of a kind; "elementwise" is elu(x) + 1 without a projection."""
    if kind == "elementwise":
        return MapSpec("elu1", amplitude=1.5)
    omega = rng.normal(size=(frequencies, d)) / d**0.25
    row = ROWS[kind]
    offset = None if row.offset == "none" else rng.normal(size=row.parts * frequencies)
    weights = None if row.scale == "none" else rng.normal(size=d) * 0.3
    return MapSpec(kind, omega, weights, offset, amplitude=0.7)


def features_of(x, spec):
    """The oracle's features of a map."""
    return oracles.from_spec(x, spec.kind, spec.omega, spec.row_weights, spec.offset, spec.amplitude)


def assert_close(out, q, k, v, spec, dtype, may=None):
    """Compare with dense attention in float64: the precision of products' operands times the row's condition."""
    q, k, v = to64(q), to64(k), to64(v)
    wanted, condition = oracles.linear_attention(features_of(q, spec), features_of(k, spec), v, may)
    reach = sum(oracles.reach(x, spec.omega, spec.row_weights, spec.offset) for x in (q, k))
    eps = OPERAND_EPS[dtype] + (2.0**-22 if dtype != "float64" else 2.0**-50) * reach
    largest = np.max(np.abs(v), axis=(-1, -2), keepdims=True)
    tolerance = 4 * eps * condition[..., None] * largest + 2 * OPERAND_EPS[dtype] * np.abs(wanted)
    out = to64(out)
    assert out.shape == wanted.shape
    assert np.isfinite(out).all()
    assert (np.abs(out - wanted) <= tolerance).all(), float(np.max((np.abs(out - wanted)) / tolerance))
