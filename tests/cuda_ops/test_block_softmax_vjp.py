"""The kernels of `block_softmax_vjp` on the emulation against array operations in float64."""

import numpy as np
import pytest

from cuda_ops.cases import DTYPES, array
from cuda_ops.pullbacks import agree, wide
from kernattn.ops.block_softmax_vjp import reference
from seam import ALL, CAUSAL

pytestmark = pytest.mark.slow  # every pullback has a usual test in test_gradients.py


def problem(cupy, dtype, lead, key_lead, n, length, d, e, plan, masked):
    """The arguments of `block_softmax_vjp`."""
    from kernattn.ops.block_softmax.gpu import block_softmax

    rng = np.random.default_rng(n)
    q = array(cupy, rng.normal(size=(*lead, n, d)), dtype)
    k, v = (array(cupy, rng.normal(size=(*key_lead, length, c)), dtype) for c in (d, e))
    mask = cupy.asarray(rng.random((*key_lead, length)) < 0.7) if masked else None
    out, lse = block_softmax(q, k, v, d**-0.5, plan, mask)
    g = rng.normal(size=out.shape)
    g[..., n // 2, :] = 0
    return q, k, v, d**-0.5, plan, mask, None, None, out, lse, array(cupy, g, dtype), None


def check(given, dtype):
    from kernattn.ops.block_softmax_vjp.gpu import block_softmax_vjp

    found = block_softmax_vjp(*given)
    assert [x.dtype for x in found[:3]] == [x.dtype for x in given[:3]]
    agree(found[:3], reference.block_softmax_vjp(*map(wide, given))[:3], dtype)
    wanted = float(reference.block_softmax_vjp(*map(wide, given))[3])
    size = 1.0 + float(np.sum(np.abs(wide(given[0]) * wide(found[0]))))  # of the sum's terms
    assert abs(float(found[3]) - wanted) <= (1e-5 if dtype in ("float32", "float64") else 0.05) * size


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_block_softmax_vjp(cupy, dtype):
    check(problem(cupy, dtype, (2, 2), (2, 1), 70, 90, 5, 7, CAUSAL, True), dtype)
    check(problem(cupy, dtype, (2,), (2,), 90, 70, 5, 7, CAUSAL, False), dtype)
    check(problem(cupy, dtype, (), (2,), 70, 5, 5, 7, ALL, True), dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_wide_heads(cupy, dtype):
    check(problem(cupy, dtype, (2,), (), 40, 70, 140, 100, CAUSAL, True), dtype)


@pytest.mark.parametrize("causal", [False, True])
def test_what_is_not_seen_may_be_anything(cupy, causal):
    from kernattn.ops.block_softmax_vjp.gpu import block_softmax_vjp

    given = list(problem(cupy, "float32", (2,), (2,), 70, 70, 5, 7, CAUSAL if causal else ALL, True))
    clean = block_softmax_vjp(*given)
    q, k, v, mask = given[0].copy(), given[1].copy(), given[2].copy(), wide(given[5])
    q[..., 35, :] = np.nan
    for x in (k, v):
        x[~given[5]] = np.nan
    found = block_softmax_vjp(q, k, v, *given[3:])
    for x, y in zip(found[:4], clean[:4], strict=True):
        np.testing.assert_array_equal(x.get(), y.get())
    assert (found[1].get()[~mask] == 0).all()
    assert (found[0].get()[..., 35, :] == 0).all()
