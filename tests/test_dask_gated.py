"""Gated attention of Dask arrays: chunks, states, masks and segments across them, and what is refused."""

from itertools import product

import numpy as np
import pytest

pytest.importorskip("dask.array")

import dask
import dask.array as da

import kernattn as ka
import kernattn.dask
from covering import turns
from gated import GATES, RULES, close, draw
from kernattn.attention import GatedState
from kernattn.errors import DTypeError, ParameterError, ShapeError, StateMismatchError


@pytest.fixture(autouse=True)
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


def gated(rule, gate, chunks, **drawn):
    """Arrays as they are and in chunks of tokens, with one sequence of the batch in each chunk of the first axis."""
    arrays, options = draw(rule, gate, **drawn)

    def lazily(name, x):
        if isinstance(x, tuple):
            return tuple(lazily("gk", part) for part in x)
        tail = (-1,) if name in ("g", "beta") else (-1, -1)
        sizes = (1, *[-1] * (x.ndim - 1 - len(tail)), *tail)
        return da.from_array(x, chunks=sizes).rechunk({x.ndim - len(tail): chunks})

    lazy = [lazily(name, x) for name, x in zip("qkv", arrays, strict=True)]
    return arrays, options, lazy, {name: lazily(name, x) for name, x in options.items() if name != "l2_normalise"}


@pytest.mark.parametrize(
    ("rule", "gate", "chunks"), turns(product(RULES, GATES), [(37,), (10,), (1,), ((1, 20, 16),)]), ids=str
)
def test_gated_attention_in_chunks_is_gated_attention(rule, gate, chunks):
    arrays, options, lazy, gates = gated(rule, gate, chunks)
    out, after = ka.gated_linear_attention(*arrays, **options, scale=0.7)
    found = ka.dask.gated_linear_attention(*lazy, **gates, scale=0.7)
    assert found[0].chunks == ((1, 1), (3,), lazy[0].chunks[-2], (3,))
    assert found[1].s.chunks == ((1, 1), (1,), (5,), (3,))
    got, last = dask.compute(*found)
    close(got, out)
    close(last.s, after.s)


@pytest.mark.parametrize("lazily", [False, True])
def test_gated_attention_goes_on_from_a_state(lazily):
    """In float32, of heads whose gates are constants: the second part begins with what the first remembers."""
    (q, k, v), options, *_ = gated("delta", "none", 9, dtype="float32", heads=(2, 3), l2=True)
    g, beta = np.array([[[-0.1]], [[-0.5]]], "f4"), options["beta"]
    out, after = ka.gated_linear_attention(q, k, v, g=g, beta=beta, l2_normalise=True)
    state, parts = None, []
    for at in (slice(20), slice(20, 37)):
        lazy = [da.from_array(x[..., at, :], chunks=(1, -1, 8, -1)) for x in (q, k, v)]
        gates = {"g": da.from_array(g, chunks=(1, -1, -1)), "beta": da.from_array(beta[..., at], chunks=(1, -1, 8))}
        part, state = ka.dask.gated_linear_attention(*lazy, **gates, l2_normalise=True, state=state)
        parts.append(part)
        if not lazily:
            (state,) = dask.compute(state)
    got, last = dask.compute(da.concatenate(parts, axis=-2), state)
    assert (got.dtype, last.s.dtype) == ("f4", "f4")
    close(got, out, 1e-6)
    close(last.s, after.s, 1e-6)


IDS = {
    "none": None,
    "within chunks": [3] * 4 + [1] * 2 + [2] * 31,
    "where chunks begin": [1] * 10 + [2] * 10 + [2] * 10 + [1] * 7,
    "each token": list(range(37)),
    "one": [5] * 37,
}


@pytest.mark.parametrize(("ids", "masked", "rule"), turns(product(IDS, [False, True]), RULES))
def test_gated_chunks_have_masks_and_segments(rule, ids, masked):
    """NaN of masked tokens, and of a segment that is over, reaches nothing that is computed without it."""
    if (IDS[ids], masked) == (None, False):
        masked = "nothing is there"
    (q, k, v), options, _, _ = gated(rule, "channel", 10)
    q, k, v = (np.array(x) for x in (q, k, v))
    before = GatedState(np.random.default_rng(5).standard_normal((2, 1, 5, 3)))
    beside = {}
    if ids != "none":
        beside["segment_ids"] = np.array(IDS[ids]) if rule == "delta" else np.array([[IDS[ids]], [IDS[ids][::-1]]])
    if masked:
        beside["key_mask"] = np.random.default_rng(6).random((2, 1, 37)) > (0.4 if masked is True else 1)
        beside["key_mask"][..., 20:30] = False  # a chunk of nothing
        k[~beside["key_mask"]] = v[~beside["key_mask"]] = np.nan
    if ids == "each token":
        v[..., 12, :] = np.nan

    def lazily(x, axis=-1):
        return da.from_array(x, chunks=-1).rechunk({x.ndim + axis: 10})

    lazy = [lazily(x, -2) for x in (q, k, v)]
    gates = {
        name: tuple(lazily(part, -2) for part in x) if name == "erase" else lazily(x, -2 if name == "gk" else -1)
        for name, x in options.items()
    }
    for state in (None, before):
        with np.errstate(invalid="ignore"):
            out, after = ka.gated_linear_attention(q, k, v, **options, **beside, state=state)
            chunks = {name: lazily(x) for name, x in beside.items()}
            got, last = dask.compute(*ka.dask.gated_linear_attention(*lazy, **gates, **chunks, state=state))
        shown = beside.get("key_mask", np.ones(37, bool))
        assert np.isnan(out).any() == (ids == "each token" and shown[..., 12].any())
        np.testing.assert_allclose(got, out, atol=1e-12 * np.nanmax(abs(out), initial=1), rtol=0)
        close(last.s, after.s)


def test_gated_chunks_do_not_see_later_ones_nor_gates_above_0():
    _, _, lazy, gates = gated("delta", "scalar", 10)
    out, _ = ka.dask.gated_linear_attention(*lazy, **gates)
    wrecked = [da.concatenate([a[..., :30, :], a[..., 30:, :] * np.nan], axis=-2) for a in lazy]
    part, _ = ka.dask.gated_linear_attention(*wrecked, **gates)
    np.testing.assert_array_equal(part[..., :30, :].compute(), out[..., :30, :].compute())
    wrong = ka.dask.gated_linear_attention(*lazy, g=-gates["g"])[0]
    with pytest.raises(ParameterError, match="g must be natural logarithms of decays"):
        wrong.compute()


def test_gated_chunks_that_do_not_fit_are_refused():
    _, _, (q, k, v), gates = gated("delta", "channel", 10)
    call = ka.dask.gated_linear_attention
    wrong = GatedState(np.zeros((2, 1, 5, 2)))
    refused = [
        (ShapeError, "q and k must have the same chunks along axis -2", lambda: call(q, k.rechunk({2: 12}), v)),
        (ShapeError, "beta must have the same chunks", lambda: call(q, k, v, beta=gates["beta"].rechunk({2: 12}))),
        (ShapeError, "k must have as many tokens as q, 1; got 37", lambda: call(q[..., :1, :], k, v)),
        (ShapeError, "gk must have as many tokens as q, 37; got 1", lambda: call(q, k, v, gk=gates["gk"][..., :1, :])),
        (DTypeError, "g must be a Dask array", lambda: call(q, k, v, g=np.zeros(37))),
        (DTypeError, "beta must have dtype float64", lambda: call(q, k, v, beta=gates["beta"].astype("f4"))),
        (ParameterError, "erase must be a pair", lambda: call(q, k, v, erase=k)),
        (ParameterError, "got None for one of them", lambda: call(q, k, v, erase=(None, k))),
        (ParameterError, "exclude each other", lambda: call(q, k, v, erase=(k, k), beta=gates["beta"])),
        (ParameterError, "scale must be", lambda: call(q, k, v, scale=np.nan)),
        (StateMismatchError, "the state must have", lambda: call(q, k, v, state=wrong)),
        (DTypeError, "key_mask must be a Dask array", lambda: call(q, k, v, key_mask=np.ones(37, bool))),
        (DTypeError, "key_mask must", lambda: call(q, k, v, key_mask=da.ones(37, chunks=10))),
        (DTypeError, "segment_ids must", lambda: call(q, k, v, segment_ids=da.ones(37, chunks=10))),
        (ShapeError, "have the same chunks", lambda: call(q, k, v, key_mask=da.ones(37, dtype=bool, chunks=12))),
        (ShapeError, "must have as many tokens", lambda: call(q, k, v, key_mask=da.ones(1, dtype=bool, chunks=1))),
        (DTypeError, "state must be a GatedState", lambda: call(q, k, v, state=3)),
    ]
    for error, words, given in refused:
        with pytest.raises(error, match=words):
            given()
