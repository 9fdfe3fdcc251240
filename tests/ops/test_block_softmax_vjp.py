"""Compiled pullbacks of exact attention against those of array operations in float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernattn._parallel import VARIABLE
from kernattn.ops.block_softmax import OP as FORWARD
from kernattn.ops.block_softmax_vjp import OP
from kernattn.ops.plan import ALL, CAUSAL
from xp import numpy_dtype

pytest.importorskip("numba")

EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
LEADS = [((), ()), ((2,), (2,)), ((3, 2), (3, 1)), ((2,), ()), ((), (2,))]


def drawn(q_lead, k_lead, n, length, d, e, seed=0):
    rng = np.random.default_rng(seed)
    shapes = (*q_lead, n, d), (*k_lead, length, d), (*k_lead, length, e)
    return [rng.standard_normal(shape) for shape in shapes]


def cotangent(q, k, v):
    lead = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    return np.random.default_rng(9).standard_normal((*lead, q.shape[-2], v.shape[-1])).astype(v.dtype)


def pulled(backend, q, k, v, g, scale, plan, mask=None):
    """The cotangents by a backend, behind its forward op."""
    run, back = (op.implementation(q, backend) for op in (FORWARD, OP))
    out, lse = run(q, k, v, scale, plan, mask)
    return back(q, k, v, scale, plan, mask, out, lse, g)


def check(q, k, v, g, scale, plan, mask=None, rounding=40.0):
    """Compare with the reference in float64, each part to the size of its largest number."""
    found = pulled("cpu", q, k, v, g, scale, plan, mask)
    wanted = pulled("reference", *(x.astype("f8") for x in (q, k, v, g)), scale, plan, mask)
    fine = EPS["float64" if q.dtype == np.float64 else "float32"]
    for x, y, like in zip(found, wanted, (q, k, v, None), strict=True):
        assert x.shape == y.shape
        assert x.dtype == (y.dtype if q.dtype == np.float64 else np.float32 if like is None else like.dtype)
        own = 0.0 if like is None else 2 * EPS[q.dtype.name]
        size = np.abs(y).max() if like is not None else 1 + np.sqrt(np.sum(wanted[0].astype("f8") ** 2) * np.sum(np.square(q, dtype="f8")))
        assert np.isfinite(x.astype("f8")).all()
        assert np.abs(x.astype("f8") - y).max() <= (rounding * fine + own) * max(size, 1e-3)
    return found


@settings(max_examples=25, deadline=None)
@given(
    leads=st.sampled_from(LEADS),
    n=st.integers(1, 150),
    length=st.integers(1, 150),
    d=st.integers(1, 20),
    e=st.integers(1, 20),
    dtype=st.sampled_from(list(EPS)),
    plan=st.sampled_from([ALL, CAUSAL]),
    seen=st.sampled_from([None, 0.0, 0.3, 0.9]),
    scale=st.sampled_from([0.3, -1.0, 0.0]),
)
def test_every_shape_dtype_and_mask(leads, n, length, d, e, dtype, plan, seen, scale):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    q, k, v = (x.astype(numpy_dtype(dtype)) for x in drawn(*leads, n, length, d, e))
    mask = None if seen is None else np.random.default_rng(2).random((*leads[1], length)) < seen
    check(q, k, v, cotangent(q, k, v), scale, plan, mask, rounding=400.0)
