"""Sums in units of their own, and how they are merged."""

import numpy as np

import kernattn as ka
from laws import arrays
from xp import to_numpy


def state(xp, *parts):
    return ka.LinearState(*(xp.asarray(part) for part in parts), 1)


def test_merging_sums_of_nothing_and_of_everything(xp):
    s, z, peak = arrays(5, (4, 3), (4,), (4,))
    a = state(xp, s, z, 500 * peak)
    nothing = state(xp, 0 * s, 0 * z, np.full_like(peak, -np.inf))
    for got in (ka.merge_states(a, nothing), ka.merge_states(nothing, a)):
        for x, y in zip(got[:3], a[:3], strict=True):
            np.testing.assert_array_equal(to_numpy(x), to_numpy(y))
    both = ka.merge_states(nothing, nothing)
    assert (to_numpy(both.s) == 0).all()
    assert (to_numpy(both.peak) == -np.inf).all()


def test_sums_far_below_another_keep_their_digits_or_count_as_nothing(xp):
    """So averages stay among the values however far apart two sums are, and whichever comes first."""
    octaves = np.arange(0.0, 200.0)
    z, value = np.full((200, 1), 0.7, np.float32), np.float32(0.3)
    low = state(xp, z[..., None] * value, z, (-octaves[:, None] * np.log(2)).astype(np.float32))
    high = state(xp, *(np.zeros(x.shape, np.float32) for x in (z[..., None], z, z)))  # in another feature
    for got in (ka.merge_states(low, high), ka.merge_states(high, low)):
        s, sums = to_numpy(got.s)[..., 0], to_numpy(got.z)
        nothing = sums == 0
        assert (s[nothing] == 0).all()
        np.testing.assert_allclose(s[~nothing], value * sums[~nothing], rtol=1e-6)
        assert not nothing[octaves < 100].any()
        assert nothing[octaves > 120].all()
