"""Compiled steps, token by token, against causal attention of the whole and the reference."""

import numpy as np
import pytest

from kernattn.ops.step import reference as reference_step
from linear_ops import inputs, same_state, spec_of
from seam import PeakedSum, empty

pytest.importorskip("numba")

from kernattn.ops.causal.cpu import causal
from kernattn.ops.step.cpu import step


@pytest.mark.parametrize("kind", ["elu1", "sincos", "exp_pair"])
@pytest.mark.parametrize("masked", [False, True])
def test_split_and_resume_and_steps(kind, masked):
    q, k, v = inputs((2,), 20, 6, 4, "float64")
    spec = spec_of(kind, 6, 9)
    mask = np.random.default_rng(3).random((2, 20)) < 0.5 if masked else None
    whole, _, last = causal(q, k, v, spec, spec, None, mask, None, False)
    peaks = 18 if kind == "exp_pair" else 1
    state = empty(np, (2,), last.s.shape[-2], peaks, 4, np.dtype("float64"), v)
    reused = PeakedSum(*(x.copy() for x in state))
    for t in range(12):
        here = None if mask is None else mask[:, t]
        old = [x.copy() for x in state]
        out, after = step(state, q[:, t], k[:, t], v[:, t], spec, spec, here, False)
        for x, y in zip(state, old, strict=True):
            np.testing.assert_array_equal(x, y)  # pure
        again, reused_after = step(reused, q[:, t], k[:, t], v[:, t], spec, spec, here, True)
        assert all(x is y for x, y in zip(reused, reused_after, strict=True))
        np.testing.assert_array_equal(out, again)
        np.testing.assert_allclose(out, whole[:, t], rtol=1e-9, atol=1e-9)
        wanted, _ = reference_step.step(state, q[:, t], k[:, t], v[:, t], spec, spec, here, False)
        np.testing.assert_allclose(out, wanted, rtol=1e-9, atol=1e-9)
        state = after
    rest, _, state = causal(
        q[:, 12:], k[:, 12:], v[:, 12:], spec, spec, state, None if mask is None else mask[:, 12:], None, False
    )
    np.testing.assert_allclose(rest, whole[:, 12:], rtol=1e-9, atol=1e-9)
    same_state(state, last, 1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_each_head_takes_its_own_way(dtype):
    """Moderate heads take a way of their own: those beside them change no bit, and all say what the reference says."""
    q, k, v = inputs((2, 8), 1, 16, 16, dtype, kv_lead=(8,))
    spec = spec_of("elu1", 16, 16)
    _, past, values = inputs((8,), 5, 16, 16, dtype, seed=2)
    _, _, state = causal(past, past, values, spec, spec, None, None, None, False)
    assert (state.peak == 0).all()  # as it is after moderate tokens
    q, k, v = q[..., 0, :], k[:, 0].copy(), v[:, 0].copy()
    k[1], q[1, 2], v[3] = 60.0, -70.0, 1e30
    state.peak[4] = 3 * np.log(2.0)
    state.s[5], state.z[5], state.peak[5] = 0.0, 0.0, -np.inf
    v[6, 3] = np.nan
    old = [x.copy() for x in state]
    out, after = step(state, q, k, v, spec, spec, None, False)
    for x, y in zip(state, old, strict=True):
        np.testing.assert_array_equal(x, y)
    reused = PeakedSum(*(x.copy() for x in state))
    again, _ = step(reused, q, k, v, spec, spec, None, True)
    np.testing.assert_array_equal(again, out)
    for x, y in zip(reused, after, strict=True):
        np.testing.assert_array_equal(x, y)
    for head in range(8):
        at = slice(head, head + 1)
        alone, left = step(PeakedSum(*(x[at] for x in state)), q[:, at], k[at], v[at], spec, spec, None, False)
        np.testing.assert_array_equal(alone, out[:, at])
        for x, y in zip(left, after, strict=True):
            np.testing.assert_array_equal(x, y[at])
    assert np.isnan(out[:, 6, 3]).all()
    wide = PeakedSum(*(x.astype("f8") for x in state))
    wanted, _ = reference_step.step(wide, *(x.astype("f8") for x in (q, k, v)), spec, spec, None, False)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    size = np.abs(v).max(axis=-1) + np.abs(values).max(axis=(1, 2))
    for head in (0, 1, 2, 3, 4, 5, 7):
        np.testing.assert_allclose(out[:, head], wanted[:, head], rtol=0, atol=tolerance * size[head])
