"""Intervals that hold whatever the law of the samples is: of quantiles, and of how often something happens."""

from __future__ import annotations

from math import ceil, floor

import numpy as np
from numpy.typing import ArrayLike

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace
from kernattn._runtime.checks import array_of, positive_integer, shown
from kernattn._runtime.deprecated import old_positions
from kernattn._runtime.lazy_scipy import special
from kernattn.errors import ParameterError, ShapeError
from kernattn.metrics._check import check_share, count_redraws
from kernattn.metrics._estimates import Interval


@old_positions("confidence")
def median_and_ci(samples: Array, *, confidence: float = 0.95) -> Interval:
    """Median over the first axis, between two order statistics: P(x_(j) <= median <= x_(R+1-j)) >= confidence.

    Source: Thompson (1936). j is the largest with 2 P(Binomial(R, 1/2) < j) <= 1 - confidence. It asks nothing of the
    law of the samples, and holds where they have no mean: the error of a ratio whose denominator comes near 0 has none.

    The parameters and the interval are those of `quantile_and_ci`; at 95% it takes R >= 6 samples.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import median_and_ci
    >>> value, low, high = median_and_ci(np.asarray([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 900.0]))
    >>> print(value, low, high)
    5.0 2.0 8.0
    """
    return quantile_and_ci(samples, 0.5, confidence=confidence)


@old_positions("confidence")
def quantile_and_ci(samples: Array, probability: float, *, confidence: float = 0.95) -> Interval:
    """Quantile over the first axis, between two order statistics: P(x_(j) <= quantile <= x_(k)) >= confidence.

    Source: Thompson (1936). With B ~ Binomial(R, p), j is the largest with 2 P(B < j) <= 1 - confidence, and k the
    smallest with 2 P(B >= k) <= 1 - confidence. It asks nothing of the law of the samples. The value interpolates
    between the two nearest order statistics.

    Parameters
    ----------
    samples : array (R, ...)
        Independent along the first axis; real floating dtype.
    probability : float
        p of the quantile, in (0, 1). At 95% confidence p = 0.9 takes R >= 36, p = 0.99 R >= 368.
    confidence : float
        Least probability of the interval, in (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import quantile_and_ci
    >>> value, low, high = quantile_and_ci(np.arange(101.0), 0.9)
    >>> print(value, low, high)
    90.0 84.0 96.0
    """
    xp = namespace(samples=samples)
    count = count_redraws("samples", samples)
    check_share("confidence", confidence)
    check_share("probability", probability)
    ranks, left_out = np.arange(count), (1 - confidence) / 2
    j = int(np.sum(special.bdtr(ranks, count, probability) <= left_out))
    k = count + 1 - int(np.sum(special.bdtrc(ranks, count, probability) <= left_out))
    if j == 0 or k > count:
        name = "median" if probability == 0.5 else f"{probability:g} quantile"
        raise ShapeError(
            f"{count} samples give the {name} no interval of confidence {confidence}; at 95% the "
            "median takes 6 and the 0.9 quantile 36"
        )
    ordered = xp.sort(samples, axis=0)
    place = probability * (count - 1)
    wide = accumulation_dtype(xp, samples)
    left, right = (xp.astype(ordered[rank(place), ...], wide, copy=False) for rank in (floor, ceil))
    share = place - floor(place)
    value = xp.astype(xp.where(left == right, left, (1 - share) * left + share * right), samples.dtype, copy=False)
    return Interval(value, ordered[j - 1, ...], ordered[k - 1, ...])


@old_positions("confidence")
def proportion_and_ci(hits: ArrayLike, trials: int, *, confidence: float = 0.95) -> Interval:
    """Share of trials that were hits, h / R, with the interval of Clopper and Pearson: it covers at least what it says.

    Source: Clopper and Pearson (1934), as quantiles of beta distributions: from that of Beta(h, R - h + 1) to that of
    Beta(h + 1, R - h). With no hit it goes from 0 to 1 - ((1 - confidence) / 2)^(1/R), about 3.7 / R at 95%.

    Parameters
    ----------
    hits : int or array of int (...)
        How often it happened, 0 to R; of NumPy.
    trials : int
        Number R of independent trials.
    confidence : float
        Least probability of the interval, in (0, 1).

    Examples
    --------
    >>> from kernattn.metrics import proportion_and_ci
    >>> value, low, high = proportion_and_ci(1, 20)
    >>> print(f"{value:.3f} in [{low:.4f}, {high:.4f}]")
    0.050 in [0.0013, 0.2487]
    """
    trials = positive_integer("trials", trials)
    check_share("confidence", confidence)
    count = array_of(hits)
    if count.dtype.kind not in "iu" or np.any(count < 0) or np.any(count > trials):
        raise ParameterError(f"hits must be integers from 0 to trials = {trials}; got {shown(hits)}")
    tail = (1 - confidence) / 2
    low = np.where(count == 0, 0.0, special.betaincinv(np.maximum(count, 1), trials - count + 1, tail))
    high = np.where(count == trials, 1.0, special.betaincinv(count + 1, np.maximum(trials - count, 1), 1 - tail))
    return Interval(count / trials, low, high)
