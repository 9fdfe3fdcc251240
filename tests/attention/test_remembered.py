"""Forms of arrays that have passed once are not checked again: what differs in anything that decides is."""

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from kernattn._arrays.forms import MOST, Forms, form_of

PHI = ka.features.elu1()
ROWS = np.ones((7, 4), np.float32)


def good_then_bad(call, good, bad, error, words):
    for _ in range(2):
        call(**good)
    with pytest.raises(error, match=words):
        call(**bad)
    call(**good)


def causal(**arrays):
    return ka.causal_linear_attention(**{"q": ROWS, "k": ROWS, "v": ROWS} | arrays, phi=PHI)


@pytest.mark.parametrize("name", "qkv")
def test_another_dtype(name):
    good_then_bad(causal, {}, {name: ROWS.astype("f8")}, errors.DTypeError, "one dtype")


def test_another_shape():
    good_then_bad(causal, {}, {"v": ROWS[:6]}, errors.ShapeError, "number of tokens")


def test_another_name():
    seen = np.ones(7, bool)
    good_then_bad(causal, {"key_mask": seen}, {"segment_ids": seen}, errors.DTypeError, "segment_ids must have dtype")


def test_tokens_where_sequences_are_meant():
    row = np.ones(4, np.float32)
    state = ka.initial_state(PHI, (), 4, ROWS)
    ka.linear_attention_step(state, row, row, row, PHI)
    with pytest.raises(errors.ShapeError, match=r"must be \(..., n, d\)"):
        causal(q=row, k=row, v=row)

    row = np.ones(5, np.float32)  # a form of its own: a step with a window checks without its state
    state = ka.attention.window_attention(*np.ones((3, 1, 5), np.float32), PHI, 2)[1]
    ka.attention.window_attention_step(state, row, row, row, PHI)
    with pytest.raises(errors.ShapeError, match=r"must be \(..., n, d\)"):
        causal(q=row, k=row, v=row)


def test_a_step_of_another_dtype():
    row, state = np.ones(4, np.float32), ka.initial_state(PHI, (), 4, ROWS)

    def step(**arrays):
        return ka.linear_attention_step(**{"state": state, "q": row, "k": row, "v": row} | arrays, phi=PHI)

    wide = row.astype("f8")
    good_then_bad(step, {}, {"v": wide}, errors.DTypeError, "one dtype")
    good_then_bad(step, {}, dict.fromkeys("qkv", wide), errors.DTypeError, "the state of float64 arrays is float64")


def test_another_place():
    """Checked by the form itself: without a second device, later checks refuse what this one would let pass."""
    torch = pytest.importorskip("torch")
    row = torch.ones((7, 4))
    forms = [form_of("q", each) for each in (row, row.clone(), row.to("meta"), row.to_sparse())]
    assert forms[0] == forms[1]
    assert len(set(forms)) == 3


def test_another_state():
    other = ka.random_features(ka.kernels.Softmax(), 4, 8, rng=1)
    state, wide = ka.key_state(ROWS, ROWS, PHI), ka.key_state(ROWS, ROWS[:, :3], PHI)

    def attend(**arrays):
        return ka.attend(**{"state": state, "q": ROWS} | arrays, phi=PHI)

    attend(state=wide)
    mismatch = errors.StateMismatchError
    good_then_bad(attend, {}, {"state": ka.key_state(ROWS, ROWS, other)}, mismatch, "from one draw")
    good_then_bad(attend, {}, {"state": state._replace(z=state.z[:2])}, mismatch, r"got shapes")
    good_then_bad(attend, {}, {"state": None}, errors.DTypeError, "must be a LinearState")
    good_then_bad(causal, {"state": state}, {"state": wide}, mismatch, "one last axis")
    good_then_bad(causal, {"state": None}, {"state": tuple(state)}, errors.DTypeError, "must be a LinearState")


def test_softmax_of_another_dimension():
    def softmax(**arrays):
        return ka.softmax_attention(**{"q": ROWS, "k": ROWS, "v": ROWS} | arrays)

    good_then_bad(softmax, {}, {"k": ROWS[:, :3]}, errors.ShapeError, "last axis")


def test_rows_of_a_map():
    phi = ka.random_features(ka.kernels.Softmax(), 4, 8, rng=1)
    good_then_bad(phi, {"x": ROWS}, {"x": ROWS[:, :3]}, errors.ShapeError, "d = 4 columns")
    good_then_bad(phi, {"x": ROWS}, {"x": ROWS.astype("i4")}, errors.DTypeError, "one of the dtypes")
    good_then_bad(phi, {"x": ROWS}, {"x": ROWS[0]}, errors.ShapeError, r"\(\.\.\., n, d\)")


def test_another_library():
    torch = pytest.importorskip("torch")
    good_then_bad(causal, {}, {"k": torch.ones(7, 4)}, errors.MixedLibraryError, "one library")


def test_forms_are_forgotten():
    forms = Forms()
    for number in range(3 * MOST):
        forms.add((number,))
        assert (number,) in forms
    forms.add(None)
    assert None not in forms
    assert sum((number,) in forms for number in range(3 * MOST)) <= MOST
