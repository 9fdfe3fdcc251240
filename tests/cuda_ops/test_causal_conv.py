"""The kernels of `causal_conv` and `causal_conv_step` on the emulation against sums over taps written out."""

import numpy as np
import pytest

from cuda_ops.cases import array, to64
from kernattn.ops.causal_conv.gpu import causal_conv
from kernattn.ops.causal_conv_step.gpu import causal_conv_step
from ops.test_short_conv import by_hand

CLOSE = {"float64": 1e-13, "float32": 2e-6, "float16": 4e-3, "bfloat16": 3e-2}
CASES = [  # taps, biased, silu, segmented, tokens side by side, dtype of x, of the taps
    (4, True, True, True, False, "bfloat16", "float32"),
    (4, False, True, True, True, "bfloat16", "float32"),
    (3, True, False, False, True, "float32", "float32"),
    (1, True, True, False, False, "float32", "float32"),
]
SLOW = [
    (taps, biased, True, True, along, dtype, dtype)
    for taps in (1, 2, 5)
    for along in (False, True)
    for biased, dtype in ((True, "float16"), (False, "bfloat16"), (True, "float32"), (False, "float64"))
]


def convolved(cupy, taps, biased, silu, segmented, along, dtype, weights, sizes=(70, 37)):
    """Two sequences, longer than a block's lines; what is wanted in float64, and the unit of its error."""
    rng = np.random.default_rng(taps)
    x, weight = (
        array(cupy, rng.normal(size=(2, *sizes)), dtype),
        array(cupy, rng.normal(size=(sizes[1], taps)), weights),
    )
    if along:
        x = cupy.swapaxes(cupy.ascontiguousarray(cupy.swapaxes(x, -1, -2)), -1, -2)
    bias = array(cupy, rng.normal(size=sizes[1]), weights) if biased else None
    ids = np.sort(rng.integers(0, 12, size=sizes[0])) if segmented else None
    out = causal_conv(x, weight, bias, silu, None if ids is None else cupy.asarray(ids))
    wide = [None if y is None else to64(y) for y in (weight, bias)]
    wanted = np.stack([by_hand(tokens, *wide, silu, ids) for tokens in to64(x)])
    return out, wanted, (x, weight, bias)


@pytest.mark.parametrize("case", CASES + [pytest.param(case, marks=pytest.mark.slow) for case in SLOW], ids=str)
def test_causal_conv(cupy, monkeypatch, case):
    monkeypatch.setattr("kernattn.ops.causal_conv.gpu.reference", None)
    taps, silu, segmented, along, dtype = case[0], *case[2:6]
    out, wanted, (x, weight, bias) = convolved(cupy, *case)
    assert out.dtype == x.dtype
    assert out.strides == x.strides, "outputs lie as inputs do"
    np.testing.assert_allclose(to64(out), wanted, rtol=0, atol=CLOSE[dtype] * np.max(np.abs(wanted)))
    if segmented or along:
        return
    for length, kind in ((max(taps - 1, 1), dtype), (taps + 1, "float32")):  # token by token
        state = array(cupy, np.zeros((2, 37, length)), kind)
        for t in range(9):
            token, after = causal_conv_step(state, x[:, t], weight, bias, silu)
            assert after is state
            np.testing.assert_allclose(to64(token), wanted[:, t], rtol=0, atol=CLOSE[dtype] * np.max(np.abs(wanted)))
        last = np.concatenate([np.zeros((2, length, 37)), to64(x[:, :9])], axis=1)[:, -length:]
        np.testing.assert_allclose(to64(state), last.swapaxes(1, 2), rtol=1e-7)


def test_states_that_are_not_contiguous_move_on_where_they_are(cupy):
    room = array(cupy, np.arange(24).reshape(4, 6), "float32")
    state, x = room[:, ::2], array(cupy, -np.ones(4), "float32")
    out, after = causal_conv_step(state, x, array(cupy, np.ones((4, 2)), "float32"), None, False)
    assert after is state
    np.testing.assert_array_equal(to64(room)[:, ::2], [[2, 4, -1], [8, 10, -1], [14, 16, -1], [20, 22, -1]])
    np.testing.assert_array_equal(to64(room)[:, 1::2], np.arange(24).reshape(4, 6)[:, 1::2])
    np.testing.assert_array_equal(to64(out), [3, 9, 15, 21])


def test_what_is_no_number_stays_in_its_channel_and_its_taps(cupy):
    x, weight = np.random.default_rng(0).normal(size=(12, 3)), array(cupy, np.ones((3, 3)), "float32")
    clean = to64(causal_conv(array(cupy, x, "float32"), weight, None, True, None))
    x[2, 1], x[7, 0] = np.nan, -1e30
    out = to64(causal_conv(array(cupy, x, "float32"), weight, None, True, None))
    touched = np.zeros(x.shape, bool)
    touched[2:5, 1] = touched[7:10, 0] = True
    assert np.isnan(out[2:5, 1]).all()
    np.testing.assert_array_equal(out[7:10, 0], 0)
    np.testing.assert_array_equal(out[~touched], clean[~touched])


def test_many_taps_and_no_tokens_are_left_to_array_operations(cupy):
    out, wanted, _ = convolved(cupy, 33, True, False, True, False, "float32", "float32")
    np.testing.assert_allclose(to64(out), wanted, atol=1e-4)
    none = array(cupy, np.zeros((2, 0, 3)), "float32")
    assert causal_conv(none, array(cupy, np.ones((3, 2)), "float32"), None, True, None).shape == (2, 0, 3)
