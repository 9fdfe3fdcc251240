"""One token of gated attention: a sequence of one, written where it is asked to be."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import ParameterError, ShapeError
from kernattn.ops.gated.reference import gated
from kernattn.ops.gated_step.cpu import gated_step
from kernattn.ops.gated_step.reference import gated_step as reference

HEADS, D, E = (2, 3), 5, 35  # more values than a block of columns has, and a rest


def token(rule, gate, dtype, rng):
    q, k = (rng.standard_normal((*HEADS, D)).astype(dtype) for _ in range(2))
    v = rng.standard_normal((*HEADS, E)).astype(dtype)
    g = np.log(rng.random(HEADS)).astype(dtype) if gate in ("g", "both") else None
    gk = np.log(rng.random((*HEADS, D))).astype(dtype) if gate in ("gk", "both") else None
    if gk is not None:
        gk[..., 0] = -np.inf
    beta = rng.random(HEADS).astype(dtype) if rule == "delta" else None
    pair = (rng.standard_normal((*HEADS, D)).astype(dtype) for _ in range(2)) if rule == "general" else (None, None)
    return q, k, v, g, gk, beta, *pair


@pytest.mark.parametrize("step", [reference, gated_step])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("gate", [None, "g", "gk", "both"])
@pytest.mark.parametrize("rule", ["decay", "delta", "general"])
def test_a_step_is_a_sequence_of_one(step, dtype, gate, rule):
    rng = np.random.default_rng(0)
    q, k, v, g, gk, beta, a, b = token(rule, gate, dtype, rng)
    q = np.stack([q, -q])  # two queries read one state
    state, mask = rng.standard_normal((*HEADS, D, E)).astype(dtype), rng.random(HEADS) > 0.5
    wide = [None if x is None else x.astype("f8") for x in (q, k, v, gk, a, b)]
    rows = [None if x is None else x[..., None, :] for x in wide]
    lone = [None if x is None else x.astype("f8")[..., None] for x in (g, beta)]
    out, after = gated(
        *rows[:3], lone[0], rows[3], lone[1], *rows[4:], 0.3, True, state.astype("f8"), mask[..., None], None
    )
    tolerance = {"f4": 2e-6, "f8": 1e-13}[dtype]
    held, room = state.copy(), np.empty(out[..., 0, :].shape, dtype)
    for reuse, into in ((False, None), (True, room)):
        found, renewed = step(held, q, k, v, g, gk, beta, a, b, 0.3, True, mask, reuse, into)
        np.testing.assert_allclose(found, out[..., 0, :], rtol=0, atol=tolerance * abs(out).max())
        np.testing.assert_allclose(renewed, after, rtol=0, atol=tolerance * abs(after).max())
        assert found.dtype == np.dtype(dtype)
        if not reuse:
            np.testing.assert_array_equal(held, state)
    assert found is room
    if step is gated_step:
        assert renewed is held


def test_a_masked_token_may_be_anything():
    nan = np.full(D, np.nan)
    state = ka.attention.GatedState(np.ones((D, E)))
    out, after = ka.gated_linear_attention_step(
        state, np.ones(D), nan, np.full(E, np.nan), gk=nan, beta=np.array(np.nan), key_mask=np.array(False)
    )
    np.testing.assert_array_equal(after.s, state.s)
    np.testing.assert_allclose(out, D**0.5)


def test_where_a_step_writes():
    q, state = np.ones(D), ka.attention.GatedState(np.zeros((D, E)))
    v, room = np.ones(E), np.empty(E)
    out, after = ka.gated_linear_attention_step(state, q, q, v, reuse_state=True, out=room)
    assert out is room
    assert after is state
    for wrong, error in ((np.empty(E + 1), ShapeError), (v, ParameterError), (state.s[0], ParameterError)):
        with pytest.raises(error, match="out must"):
            ka.gated_linear_attention_step(state, q, q, v, out=wrong)


def test_a_large_state_begins_at_a_line_of_the_cache():
    x = np.ones((16, 40), np.float32)
    _, after = ka.gated_linear_attention_step(None, x, x, np.ones((16, 32), np.float32), backend="cpu")
    assert after.s.ctypes.data % 64 == 0


@pytest.mark.parametrize("dtype", ["f2", "f4"])
def test_arrays_that_are_read_may_lie_anyhow(dtype, monkeypatch):
    """Read-only, backwards, every second number, off their alignment, of a class of one's own; and in threads."""
    q, k, v, g, _, beta, *_ = token("delta", "g", dtype, np.random.default_rng(0))
    given = {"s": np.ones((*HEADS, D, E), "f4"), "q": q, "k": k, "v": v, "g": g.astype("f4"), "beta": beta}

    def step(s, q, k, v, g, beta):
        out, after = ka.gated_linear_attention_step(ka.attention.GatedState(s), q, k, v, g=g, beta=beta, backend="cpu")
        return out, after.s

    def off(x):
        memory = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
        memory[...] = x
        return memory

    def locked(x):
        x = x.copy()
        x.setflags(write=False)
        return x

    class Own(np.ndarray):
        pass

    wanted = step(**given)
    for lay in (
        locked,
        off,
        lambda x: x[::-1].copy()[::-1],
        lambda x: np.repeat(x, 2, -1)[..., ::2],
        lambda x: x.view(Own),
    ):
        for found, right in zip(step(**{name: lay(x) for name, x in given.items()}), wanted, strict=True):
            np.testing.assert_array_equal(found, right)
    monkeypatch.setattr("kernattn._runtime.parallel.WORTH_SHARING", 0.0)
    monkeypatch.setenv("KERNATTN_NUM_THREADS", "3")
    for found, right in zip(step(**given), wanted, strict=True):
        np.testing.assert_array_equal(found, right)
