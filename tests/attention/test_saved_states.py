"""States of gated attention as files: arrays and nothing else, from which a call goes on with the same bits."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.attention import GatedState, GatedStretch
from kernattn.errors import StateMismatchError

N, D, E, HEADS = 12, 5, 3, (2, 1)


def drawn(dtype):
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((*HEADS, N, c)).astype(dtype) for c in (D, D, E))
    gates = {"g": -rng.exponential(size=(*HEADS, N)), "beta": rng.uniform(0, 1, (*HEADS, N))}
    return (q, k, v), {name: x.astype(dtype) for name, x in gates.items()}


def part(arrays, gates, at):
    return [x[..., at, :] for x in arrays], {name: x[..., at] for name, x in gates.items()}


def kept(state, place):
    """Return what a file holds of a state, made a state again."""
    np.savez(place, **state._asdict())
    with np.load(place) as file:
        return type(state)(**file)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_saved_states_and_stretches_go_on(dtype, tmp_path):
    arrays, gates = drawn(dtype)
    (first, early), (rest, late) = (part(arrays, gates, at) for at in (slice(5), slice(5, N)))
    _, state = ka.gated_linear_attention(*first, **early, l2_normalise=True)
    again = kept(state, tmp_path / "state.npz")
    assert isinstance(again, GatedState)
    out, last = ka.gated_linear_attention(*rest, **late, l2_normalise=True, state=state)
    found, after = ka.gated_linear_attention(*rest, **late, l2_normalise=True, state=again)
    np.testing.assert_array_equal(found, out)
    np.testing.assert_array_equal(after.s, last.s)
    stretch = ka.attention.gated_state(*rest[1:], **late, l2_normalise=True)
    tail = kept(stretch, tmp_path / "stretch.npz")
    assert isinstance(tail, GatedStretch)
    merged = ka.merge_states(again, tail)
    np.testing.assert_array_equal(merged.s, ka.merge_states(state, stretch).s)
    np.testing.assert_allclose(merged.s, last.s, rtol=1e-5 if dtype == "float32" else 1e-12, atol=1e-6)


@pytest.mark.parametrize("shape", [(*HEADS, E, D), (1, 2, D, E), (2, D, E), (*HEADS, D + 1, E)], ids=str)
def test_states_of_another_layout_are_refused(shape, tmp_path):
    arrays, gates = drawn("float64")
    state = kept(GatedState(np.zeros(shape)), tmp_path / "state.npz")
    with pytest.raises(StateMismatchError, match=r"\(2, 1, 5, 3\); got \("):
        ka.gated_linear_attention(*arrays, **gates, state=state)
    token, own = part(arrays, gates, 0)
    with pytest.raises(StateMismatchError, match=r"\(2, 1, 5, 3\); got \("):
        ka.gated_linear_attention_step(state, *token, **own)
    with pytest.raises(StateMismatchError, match="one shape and dtype"):
        ka.merge_states(state, ka.attention.gated_state(*arrays[1:], **gates))
