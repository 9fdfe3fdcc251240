"""Moments of tilted rows that were cut from a padded dimension, against their double series."""

import mpmath as mp
import numpy as np
import pytest

from kernattn.projections._cut import cut_log_moment


@pytest.mark.parametrize(
    ("p", "d", "tilt"),
    [(p, d, tilt) for p, d in ((2, 1), (8, 5), (63, 1)) for tilt in (-2.0, -0.3, 0.0, 0.1)]
    + [(p, d, tilt) for p, d in ((512, 300), (1023, 64)) for tilt in (-0.3, 0.0, 0.1)],
)
def test_cut_log_moment(p, d, tilt):
    """E e^(apB) 0F1(; d/2; t^2 pB / 4) = sum_j (t^2 p / 4)^j 1F1(d/2 + j; p/2 + j; ap) / (j! (p/2)_j)."""
    t2 = np.array([[0.0], [1.0], [60.0]])
    with mp.workdps(30):
        a, b = mp.mpf(d) / 2, mp.mpf(p) / 2

        def term(t2, j):
            return (t2 * b / 2) ** j * mp.hyp1f1(a + j, b + j, tilt * p) / (mp.factorial(j) * mp.rf(b, j))

        wanted = [float(mp.log(sum(term(mp.mpf(value), j) for j in range(120 if value else 1)))) for value in t2[:, 0]]
    got = cut_log_moment(p, d, t2, tilt)
    assert got.shape == t2.shape
    np.testing.assert_allclose(got[:, 0], wanted, rtol=1e-12, atol=1e-12)
