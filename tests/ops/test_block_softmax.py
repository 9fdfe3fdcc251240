"""Compiled exact attention against the dense float64 oracle."""

import numpy as np
import pytest

import oracles

pytest.importorskip("numba")

from kernattn.ops.block_softmax import reference
from kernattn.ops.block_softmax.cpu import block_softmax
from seam import ALL, CAUSAL

EPS = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": 2.0**-52}
SHAPES = [
    ((), (), 1, 1, 1, 1),
    ((2,), (2,), 130, 130, 16, 16),
    ((3, 2), (3, 1), 70, 50, 8, 3),
    ((2,), (), 5, 200, 7, 20),
    ((), (3,), 90, 9, 4, 4),
]


def check(q, k, v, scale, causal, mask):
    n, length = q.shape[-2], k.shape[-2]
    may = np.tri(n, length, length - n, dtype=bool) if causal else np.ones((n, length), bool)
    if mask is not None:
        may = may & mask[..., None, :]
    out, lse = block_softmax(q, k, v, scale, CAUSAL if causal else ALL, mask)
    wanted, wanted_lse = oracles.softmax_attention(*(x.astype("f8") for x in (q, k, v)), scale=scale, may=may)
    eps = EPS[q.dtype.name]
    fine = EPS["float32" if q.dtype != np.float64 else "float64"]
    reach = fine * abs(scale) * np.abs(q).max().astype("f8") * np.abs(k).max().astype("f8") * q.shape[-1]
    assert out.dtype == q.dtype
    assert np.abs(out - wanted).max() <= (20 * fine + 8 * reach + 2 * eps) * np.abs(v).max()
    seen = np.isfinite(wanted_lse)
    np.testing.assert_array_equal(np.isneginf(lse), ~np.broadcast_to(seen, lse.shape))
    assert (
        np.abs(lse - wanted_lse)[seen].max(initial=0)
        <= 20 * fine * (1 + np.abs(wanted_lse[seen]).max(initial=0)) + 8 * reach
    )
    assert (out[~np.broadcast_to(seen, lse.shape)] == 0).all()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_every_shape(causal, shape, dtype):
    q_lead, k_lead, n, length, d, e = shape
    rng = np.random.default_rng(0)
    q, k, v = (
        rng.standard_normal(s).astype(dtype) for s in ((*q_lead, n, d), (*k_lead, length, d), (*k_lead, length, e))
    )
    with np.errstate(invalid="ignore"):
        for mask in (
            None,
            rng.random((*k_lead, length)) < 0.6,
            np.arange(length) >= length // 2,
            np.zeros(length, bool),
        ):
            for scale in (0.3, 20.0, -1.0):
                check(q, k, v, scale, causal, None if mask is None else np.broadcast_to(mask, (*k_lead, length)))


def test_masked_keys_and_the_future_may_hold_anything():
    rng = np.random.default_rng(1)
    q, k, v = rng.standard_normal((3, 2, 100, 8)).astype("f4")
    mask = rng.random((2, 100)) < 0.7
    clean, lse = block_softmax(q, k, v, 0.3, CAUSAL, mask)
    k[~mask], v[~mask] = np.inf, np.nan
    dirty, same = block_softmax(q, k, v, 0.3, CAUSAL, mask)
    np.testing.assert_array_equal(clean, dirty)
    np.testing.assert_array_equal(lse, same)
    k[:, 61:], v[:, 61:] = np.nan, 1e30
    cut, _ = block_softmax(q, k, v, 0.3, CAUSAL, mask)
    np.testing.assert_array_equal(cut[:, :61], clean[:, :61])


def test_threads_change_nothing(on_threads):
    q, k, v = np.random.default_rng(2).standard_normal((3, 3, 300, 8))
    on_threads(1)
    alone, _ = block_softmax(q, k, v, 0.3, CAUSAL, None)
    on_threads(3)
    shared, _ = block_softmax(q, k, v, 0.3, CAUSAL, None)
    np.testing.assert_array_equal(alone, shared)


def test_strided_and_read_only():
    q, k, v = np.random.default_rng(3).standard_normal((3, 2, 70, 8))
    wanted, _ = block_softmax(q, k, v, 0.3, ALL, None)
    laid = [np.asfortranarray(x) for x in (q, k, v)]
    for x in laid:
        x.flags.writeable = False
    np.testing.assert_array_equal(block_softmax(*laid, 0.3, ALL, None)[0], wanted)


@pytest.mark.parametrize("scale", [np.nan, np.inf, -np.inf])
def test_a_scale_that_is_no_number_ends_in_nan(scale):
    """As a tracer may bring it: nothing waits for the largest score."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 5, 4))
    for function in (block_softmax, reference.block_softmax):
        with np.errstate(invalid="ignore"):
            assert all(np.isnan(x).all() for x in function(q, k, v, scale, CAUSAL, None))
