"""What redraws say of an estimate: mean, bias and variance, with intervals.

Estimates carry their redraws on the first axis, (R, ...). Intervals are Student's, over the redraws, which are
independent; the entries of one draw are not, so they are averaged inside a draw before anything is said about
uncertainty.
"""

from __future__ import annotations

from typing import NamedTuple

from kernattn._arrays.namespaces import Array, check_floating, namespace, without_warnings
from kernattn._runtime.deprecated import old_positions
from kernattn._runtime.lazy_scipy import special
from kernattn._sums.units import shift_octaves
from kernattn.errors import ParameterError, ShapeError
from kernattn.metrics._check import check_broadcasts, check_share, count_redraws, scale_back, scale_down


class Interval(NamedTuple):
    """An estimate with the two ends of its confidence interval, low <= value <= high: arrays of one shape and dtype."""

    value: Array
    low: Array
    high: Array


@old_positions("confidence")
@without_warnings
def mean_and_ci(samples: Array, *, confidence: float = 0.95) -> Interval:
    """Mean over the first axis, with Student's interval: mean +- t_{R-1} s / sqrt(R).

    Source: Student (1908). The interval trusts the spread that the R samples show. Where their law has a tail that R
    samples do not reach (exponential features at large ``|x + y|``), it is too short, and the mean too small.

    Parameters
    ----------
    samples : array (R, ...)
        Independent along the first axis, R >= 2; float16, bfloat16, float32 or float64.
    confidence : float
        Probability of the interval, in (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import mean_and_ci
    >>> value, low, high = mean_and_ci(np.asarray([1.0, 2.0, 3.0]))
    >>> print(f"{value:.3f} in [{low:.3f}, {high:.3f}]")
    2.000 in [-0.484, 4.484]
    """
    xp = namespace(samples=samples)
    count = count_redraws("samples", samples)
    (units,), octaves = scale_down(xp, samples, axis=0)
    mean = xp.mean(units, axis=0)
    quantile = float(special.stdtrit(count - 1, (1 + check_share("confidence", confidence)) / 2))
    half = quantile * xp.std(units, axis=0, correction=1) / count**0.5
    return Interval(*(scale_back(xp, each, octaves, samples) for each in (mean, mean - half, mean + half)))


@old_positions("confidence")
@without_warnings
def bias_and_ci(estimates: Array, exact: Array, *, confidence: float = 0.95) -> Interval:
    """Bias of an estimate, mean_r(estimate_r) - exact, with Student's interval over the redraws.

    Source: Student (1908), as in `mean_and_ci`. An interval that misses 0 is evidence of bias; by chance alone it does
    so with one minus the confidence, at every look.

    Parameters
    ----------
    estimates : array (R, ...)
        One estimate per redraw, R >= 2.
    exact : array, broadcastable to (...)
        What is estimated.
    confidence : float
        Probability of the interval, in (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import bias_and_ci
    >>> value, low, high = bias_and_ci(np.asarray([1.0, 2.0, 3.0]), np.asarray(1.5))
    >>> print(f"{value:.3f} in [{low:.3f}, {high:.3f}]")
    0.500 in [-1.984, 2.984]
    """
    xp = namespace(estimates=estimates, exact=exact)
    count_redraws("estimates", estimates)
    check_broadcasts("exact", exact, tuple(estimates.shape[1:]))
    exact = xp.broadcast_to(exact, estimates.shape[1:])[None, ...]
    (units, exact), octaves = scale_down(xp, estimates, exact, axis=0)
    errors = mean_and_ci(units - exact, confidence=confidence)
    return Interval(*(scale_back(xp, each, octaves, estimates) for each in errors))


@without_warnings
def empirical_variance(estimates: Array) -> Array:
    """Unbiased variance over the redraws, sum_r (estimate_r - mean)^2 / (R - 1).

    Source: the sample variance, with Bessel's correction.

    Parameters
    ----------
    estimates : array (R, ...)
        One estimate per redraw, R >= 2.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import empirical_variance
    >>> print(empirical_variance(np.asarray([[1.0, 0.0], [3.0, 0.0]])))
    [2. 0.]
    """
    xp = namespace(estimates=estimates)
    count_redraws("estimates", estimates)
    (units,), octaves = scale_down(xp, estimates, axis=0)
    return scale_back(xp, xp.var(units, axis=0, correction=1), 2 * octaves, estimates)


@old_positions("confidence")
@without_warnings
def variance_ratio(estimates: Array, predicted: Array, *, confidence: float = 0.95) -> Interval:
    """Measured over predicted variance, mean_p[s_p^2 / sigma_p^2] over entries p, with an interval over the redraws.

    With t_r = mean_p[(estimate_rp - mean_p)^2 / sigma_p^2] R / (R - 1), the ratio is mean_r t_r, whose expectation is
    exactly 1 where the prediction is right; the interval is Student's over the t_r. Every entry has the same weight,
    whatever its size.

    Parameters
    ----------
    estimates : array (R, ...)
        One estimate per redraw, R >= 2.
    predicted : array (...)
        Variance of each entry, all above 0.
    confidence : float
        Probability of the interval, in (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import variance_ratio
    >>> draws = 2.0 * np.random.default_rng(0).standard_normal((50, 100))
    >>> ratio = variance_ratio(draws, np.full(100, 4.0))
    >>> bool(ratio.low < 1 < ratio.high)
    True
    """
    xp = namespace(estimates=estimates, predicted=predicted)
    count = count_redraws("estimates", estimates)
    if tuple(predicted.shape) != tuple(estimates.shape[1:]):
        raise ShapeError(
            f"predicted must have the shape of one estimate, {tuple(estimates.shape[1:])}; got {tuple(predicted.shape)}"
        )
    check_floating("predicted", predicted)
    if not bool(xp.all(predicted > 0)):
        raise ParameterError("every predicted variance must be above 0; leave out the entries that are known exactly")
    (units,), octaves = scale_down(xp, estimates, axis=0)
    (variances,), own = scale_down(xp, predicted[None, ...], axis=0)
    octaves = octaves - own / 2
    scores = (units - xp.mean(units, axis=0)) / xp.sqrt(variances)
    most = float(xp.finfo(scores.dtype).max) / 8  # beyond it the ratio is infinite
    scores = xp.reshape(xp.clip(shift_octaves(xp, scores, octaves), min=-most, max=most), (count, -1))
    (scores,), octaves = scale_down(xp, scores, axis=(0, 1))
    per_draw = xp.mean(scores**2, axis=1) * (count / (count - 1))  # (R,)
    ratio = mean_and_ci(per_draw, confidence=confidence)
    return Interval(*(scale_back(xp, each, 2 * octaves, estimates) for each in ratio))
