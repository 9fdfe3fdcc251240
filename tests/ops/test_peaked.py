"""Sums in units of their own, and how they are merged."""

import numpy as np

from kernattn._array import namespace
from kernattn.ops.peaked import PeakedSum, empty, merge
from laws import arrays
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
