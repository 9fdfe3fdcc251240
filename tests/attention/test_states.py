"""States of other draws, shapes, dtypes and libraries are refused."""

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from refusals import DRAWN, PHI, causal, refused, step, x
from xp import KINDS


def test_states_of_another_draw():
    other = DRAWN.redraw(7)
    state = ka.key_state(x(5, 4), x(5, 2), DRAWN)
    words = (DRAWN.fingerprint, other.fingerprint)
    with refused(errors.StateMismatchError, *words):
        ka.attend(state, x(5, 4), other)
    with refused(errors.StateMismatchError, *words):
        causal(x(5, 4), x(5, 4), x(5, 2), other, state=state)
    with refused(errors.StateMismatchError, *words):
        step(x(4), x(4), x(2), other, state=state)
    with refused(errors.StateMismatchError, *words):
        ka.merge_states(state, ka.key_state(x(5, 4), x(5, 2), other))
    # the same size, another function
    with refused(errors.StateMismatchError, PHI.fingerprint, ka.features.relu().fingerprint):
        ka.attend(ka.key_state(x(5, 4), x(5, 2), PHI), x(5, 4), ka.features.relu())


def test_states_of_other_shapes():
    state = ka.key_state(x(3, 5, 4), x(3, 5, 2), PHI)
    with refused(errors.StateMismatchError, "(2,)", "(3, 4, 2)"):
        causal(x(2, 5, 4), x(2, 5, 4), x(2, 5, 2), state=state)
    with refused(errors.StateMismatchError, "()", "(3, 4, 2)"):
        step(x(4), x(4), x(2), state=state)
    with refused(errors.StateMismatchError, "M = 6", "(3, 4, 2)"):
        ka.attend(state, x(3, 5, 6), PHI)
    with refused(errors.StateMismatchError, "(3, 4, 2)", "(2, 4, 2)"):
        ka.merge_states(state, ka.key_state(x(2, 5, 4), x(2, 5, 2), PHI))
    with refused(errors.ShapeError, "(2,)", "(3,"):
        ka.attend(state, x(2, 5, 4), PHI)
    damaged = state._replace(peak=state.peak[..., :0])
    with refused(errors.StateMismatchError, "peak"):
        ka.attend(damaged, x(3, 5, 4), PHI)


def test_a_token_with_the_axis_of_tokens():
    """A step is told what to take off; a batch of another size is not."""
    q, v, hint = x(3, 1, 4), x(3, 1, 2), "a step takes a token without the axis of tokens"
    state, gated = ka.key_state(q, v, PHI), ka.gated_linear_attention(q, q, v)[1]
    window = ka.attention.window_attention(q, q, v, DRAWN, 2)[1]
    for call, of, more in (
        (ka.linear_attention_step, state, (PHI,)),
        (ka.gated_linear_attention_step, gated, ()),
        (ka.attention.window_attention_step, window, (DRAWN,)),
    ):
        with refused(errors.StateMismatchError, "(3, 1", hint, "k[..., 0, :]"):
            call(of, q, q, v, *more)
        with pytest.raises(errors.StateMismatchError) as told:
            call(of, q[:2, 0], q[:2, 0], v[:2, 0], *more)
        assert hint not in str(told.value)


@pytest.mark.parametrize("e", [1, 3])
def test_states_of_another_value_dimension(e):
    """Also e = 1, which would broadcast."""
    state = ka.key_state(x(5, 4), x(5, e), PHI)
    with refused(errors.StateMismatchError, f"(4, {e})", "(5, 2)"):
        causal(x(5, 4), x(5, 4), x(5, 2), state=state)
    with refused(errors.StateMismatchError, f"(4, {e})", "(2,)"):
        step(x(4), x(4), x(2), state=state)
    with refused(errors.StateMismatchError, f"(4, {e})", "(4, 2)"):
        ka.merge_states(state, ka.key_state(x(5, 4), x(5, 2), PHI))


def test_states_of_other_dtypes_and_libraries():
    state = ka.key_state(x(5, 4), x(5, 2), PHI)
    wide = ka.key_state(x(5, 4, dtype=float), x(5, 2, dtype=float), PHI)
    with refused(errors.DTypeError, "float32", "float64"):
        ka.attend(wide, x(5, 4), PHI)
    with refused(errors.DTypeError, "float32", "float64"):
        causal(*(x(*s, dtype=float) for s in ((5, 4), (5, 4), (5, 2))), state=state)
    with refused(errors.StateMismatchError, "float32", "float64"):
        ka.merge_states(state, wide)
    strict = KINDS[2].asarray
    with refused(errors.MixedLibraryError, "numpy", "array_api_strict"):
        ka.attend(state, strict(x(5, 4)), PHI)
    with refused(errors.MixedLibraryError, "numpy", "array_api_strict"):
        ka.merge_states(state, ka.key_state(strict(x(5, 4)), strict(x(5, 2)), PHI))


@pytest.mark.parametrize("given", [None, "state", (1, 2, 3, 4), np.ones(3)], ids=["None", "str", "tuple", "ndarray"])
def test_no_states(given):
    name = type(given).__name__
    with refused(errors.DTypeError, "state", "LinearState", name):
        ka.attend(given, x(5, 4), PHI)
    with refused(errors.DTypeError, "LinearState", name):
        ka.linear_attention_step(given, x(4), x(4), x(2), PHI)
    with refused(errors.DTypeError, "a", "LinearState", name):
        ka.merge_states(given, ka.key_state(x(5, 4), x(5, 2), PHI))
    if given is not None:
        with refused(errors.DTypeError, "LinearState", name):
            causal(x(5, 4), x(5, 4), x(5, 2), state=given)


def test_step_shapes():
    with refused(errors.ShapeError, "q", "k", 3, 4):
        step(x(3), x(4), x(2))
    with refused(errors.ShapeError, "v", "()"):
        step(x(4), x(4), x())
    with refused(errors.EmptyInputError, "v", "(0,)"):
        step(x(4), x(4), x(0))
    with refused(errors.DTypeError, "key_mask", "bool", "int64"):
        step(x(4), x(4), x(2), key_mask=np.ones((), np.int64))
    with refused(errors.ShapeError, "key_mask", "(4,)"):
        step(x(4), x(4), x(2), key_mask=np.ones(4, bool))


def test_initial_state():
    with refused(errors.ParameterError, "value_dim", "0"):
        ka.initial_state(PHI, (2,), 0, like=x(4))
    with refused(errors.ParameterError, "batch_shape", "-1"):
        ka.initial_state(PHI, (-1,), 3, like=x(4))
    with refused(errors.DTypeError, "like", "int64"):
        ka.initial_state(PHI, (2,), 3, like=np.ones(4, np.int64))
    with refused(errors.ShapeError, "like", "d = 4", "(3,)"):
        ka.initial_state(DRAWN, (2,), 3, like=x(3))
    with refused(errors.DTypeError, "phi", "elu1"):
        ka.initial_state("elu1", (2,), 3, like=x(4))
    with refused(errors.ShapeError, "like", "()"):
        ka.initial_state(PHI, (2,), 3, like=x())
