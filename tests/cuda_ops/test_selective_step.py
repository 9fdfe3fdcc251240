"""The kernel `selective_step` on the emulation against its formula in float64."""

import numpy as np
import pytest

from cuda_ops.cases import array, to64
from kernattn.ops.selective_step.gpu import selective_step

CLOSE = {"float64": 1e-13, "float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}
CASES = [(2, True, "bfloat16"), (4, False, "float32")]
SLOW = [(groups, groups == 1, dtype) for groups in (1, 2) for dtype in CLOSE]


def stepped(cupy, groups, skip, dtype, columns=70):
    """Outputs and states after a token; what is wanted of each, and what the states were."""
    rng, wide = np.random.default_rng(groups), "float64" if dtype == "float64" else "float32"
    state = array(cupy, rng.normal(size=(3, 4, 5, columns)), wide)
    x, b, c = (array(cupy, rng.normal(size=(3, *y)), dtype) for y in ((4, 5), (groups, columns), (groups, columns)))
    dt, a = array(cupy, np.exp(rng.normal(size=(3, 4))), wide), array(cupy, -np.exp(rng.normal(size=4)), wide)
    d = array(cupy, rng.normal(size=4), dtype) if skip else None
    before, wide_x, wide_b, wide_c = map(to64, (state, x, b, c))
    wide_b, wide_c = (np.repeat(y, 4 // groups, axis=1)[..., None, :] for y in (wide_b, wide_c))
    after = np.exp(to64(dt) * to64(a))[..., None, None] * before + (to64(dt)[..., None] * wide_x)[..., None] * wide_b
    wanted = np.sum(after * wide_c, axis=-1) + (0 if d is None else to64(d)[:, None] * wide_x)
    out, moved = selective_step(state, x, dt, a, b, c, d)
    assert moved is state
    return (out, wanted), (moved, after)


@pytest.mark.parametrize(
    ("groups", "skip", "dtype"), CASES + [pytest.param(*case, marks=pytest.mark.slow) for case in SLOW]
)
def test_selective_step(cupy, groups, skip, dtype):
    (out, wanted), (moved, after) = stepped(cupy, groups, skip, dtype)
    assert str(out.dtype) == dtype
    close = CLOSE["float64" if dtype == "float64" else "float32"]
    np.testing.assert_allclose(to64(moved), after, rtol=0, atol=close * np.max(np.abs(after)))
    np.testing.assert_allclose(to64(out), wanted, rtol=0, atol=CLOSE[dtype] * np.max(np.abs(wanted)))


def test_states_that_are_not_contiguous_are_renewed_where_they_are(cupy):
    """B and C of unlike dtypes, and heads that lie apart."""
    ones = {n: array(cupy, np.ones((1, 2, n)), "float32") for n in (2, 3)}
    room = array(cupy, np.ones((1, 2, 3, 2)), "float32")
    state, half, zero = cupy.swapaxes(room, -1, -2), ones[3].astype("float16"), array(cupy, np.zeros(2), "float32")
    out, after = selective_step(state, ones[2], ones[2][..., 0], zero, half, ones[3], None)
    assert after is state
    np.testing.assert_array_equal(to64(room), 2)
    np.testing.assert_array_equal(to64(out), 6)
