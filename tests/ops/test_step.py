"""Compiled steps, token by token, against causal attention of the whole and the reference."""

import numpy as np
import pytest

from kernattn.ops.peaked import PeakedSum, empty
from kernattn.ops.step import reference as reference_step
from linear_ops import inputs, same_state, spec_of

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
