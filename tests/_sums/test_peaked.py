"""Sums in units of their own, and how they are merged."""

import numpy as np

from kernattn._arrays.namespaces import namespace
from kernattn._sums.peaked import merge
from laws import arrays
from seam import PeakedSum, empty
from xp import to_numpy


def test_merging_sums_of_nothing_and_of_everything(xp):
    s, z, peak = arrays(5, (4, 3), (4,), (4,))
    a = PeakedSum(*(xp.asarray(part) for part in (s, z, 500 * peak)))
    xp_of = namespace(s=a.s)
    nothing = empty(xp_of, (), 4, 4, 3, a.s.dtype, a.s)
    for got in (merge(xp_of, a, nothing), merge(xp_of, nothing, a)):
        for x, y in zip(got, a, strict=True):
            np.testing.assert_array_equal(to_numpy(x), to_numpy(y))
    both = merge(xp_of, nothing, nothing)
    assert (to_numpy(both.s) == 0).all()
    assert (to_numpy(both.peak) == -np.inf).all()


def test_sums_far_below_another_keep_their_digits_or_count_as_nothing(xp):
    """So averages stay among the values however far apart two sums are, and whichever comes first."""
    octaves = np.arange(0.0, 200.0)
    z, value = np.full((200, 1), 0.7, np.float32), np.float32(0.3)
    low = PeakedSum(
        *(xp.asarray(x.astype(np.float32)) for x in (z[..., None] * value, z, -octaves[:, None] * np.log(2)))
    )
    high = PeakedSum(*(xp.asarray(np.zeros(x.shape, np.float32)) for x in (z[..., None], z, z)))  # in another feature
    xp_of = namespace(s=low.s)
    for got in (merge(xp_of, low, high), merge(xp_of, high, low)):
        s, sums = to_numpy(got.s)[..., 0], to_numpy(got.z)
        nothing = sums == 0
        assert (s[nothing] == 0).all()
        np.testing.assert_allclose(s[~nothing], value * sums[~nothing], rtol=1e-6)
        assert not nothing[octaves < 100].any()
        assert nothing[octaves > 120].all()
