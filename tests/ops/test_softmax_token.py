"""One query of each head: what the loop for blocks of queries answers, and what leaves the range of floats."""

import numpy as np
import pytest

import kernattn as ka

pytest.importorskip("numba")

from kernattn.ops.block_softmax import token_loops


@pytest.fixture
def told(monkeypatch):
    """Return a list of what the loop tells of its reads, call by call."""
    from kernattn.ops.block_softmax import cpu

    seen = []

    def one_query(*args):
        token_loops.one_query(*args)
        seen.append(args[9].copy())

    monkeypatch.setattr(cpu, "one_query", one_query)
    return seen


def by_hand(q, k, v, added):
    """Return the output and the log normaliser in float64, where `added` is -inf for a hidden key."""
    scores = np.asarray(q, np.float64) @ np.asarray(k, np.float64).swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + added
    peak = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - peak)
    total = weights.sum(axis=-1, keepdims=True)
    return weights @ v / total, (peak + np.log(total))[..., 0]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("length", "dim", "e"), [(1, 5, 3), (7, 16, 1), (258, 33, 20)])
@pytest.mark.parametrize("causal", [False, True])
def test_it_is_attention(told, dtype, length, dim, e, causal):
    """With keys that groups share, hidden keys, and numbers that are added to keys."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(s).astype(dtype) for s in ((2, 3, 1, dim), (2, 1, length, dim), (2, 1, length, e)))
    mask = rng.random((2, 1, length)) < 0.7
    mask[..., 0] = True
    bias = rng.standard_normal((2, 1, length)).astype(dtype)
    for given, added in (
        ({}, 0),
        ({"key_mask": mask}, np.where(mask, 0, -np.inf)[..., None, :]),
        ({"key_mask": mask, "key_bias": bias}, np.where(mask, bias, -np.inf)[..., None, :]),
    ):
        out, lse = ka.attention.softmax_with_lse(q, k, v, causal=causal, **given)
        wanted = by_hand(q, k, v, added)
        rtol = 3e-6 if dtype == "float32" else 1e-13
        np.testing.assert_allclose(out, wanted[0], rtol=rtol, atol=rtol)
        np.testing.assert_allclose(lse, wanted[1], rtol=rtol, atol=rtol)
    assert len(told) == 3
    assert not np.any(told)


def test_what_it_cannot_answer_is_answered_as_blocks_are(told):
    """Scores beyond floats, hidden keys of NaN, rows that see no key; in each case rows beside stay what they are."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((3, n, 8)).astype(np.float32) for n in (1, 40, 40))
    q[1] *= 1e12
    mask = np.ones((3, 40), bool)
    mask[1, 5] = False
    cases = {
        "scores": (np.where(np.arange(3)[:, None, None] == 1, 1e30, 1) * k, v, None),
        "no key": (k, v, np.arange(3)[:, None] != np.full(40, 1)),
        "NaN": (np.where(mask[..., None], k, np.nan), np.where(mask[..., None], v, np.inf), mask),
    }
    for keys, values, seen in cases.values():
        keys, values = keys.astype(np.float32), values.astype(np.float32)
        found = ka.attention.softmax_with_lse(q, keys, values, key_mask=seen)
        twice = ka.attention.softmax_with_lse(np.repeat(q, 2, axis=1), keys, values, key_mask=seen)
        for one, two in zip(found, twice, strict=True):
            np.testing.assert_allclose(one[:, 0], two[:, 0], rtol=1e-5, atol=1e-6)
    assert [x[1] for x in told] == [True] * 3
