"""How far an approximation is from what it approximates: bias, variance, Gram matrices and attention outputs.

Estimates carry their redraws on the first axis, (R, ...). Intervals are Student's, over the redraws, which are
independent; the entries of one draw are not, so they are averaged inside a draw before anything is said about
uncertainty.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import bdtr, stdtrit

from kernattn._array import Array, check_floating, namespace, to_numpy64
from kernattn.errors import EmptyInputError, ParameterError, ShapeError

__all__ = [
    "DeltaMethod",
    "GramErrors",
    "Interval",
    "attention_mse",
    "bias_and_ci",
    "empirical_variance",
    "gram_errors",
    "mean_and_ci",
    "median_and_ci",
    "ratio_delta_method",
    "row_kl",
    "variance_ratio",
]


class Interval(NamedTuple):
    """An estimate with the two ends of its confidence interval, low <= value <= high.

    Attributes
    ----------
    value, low, high : array
        Of one shape, dtype and device.
    """

    value: Array
    low: Array
    high: Array


class GramErrors(NamedTuple):
    """Errors of one estimated kernel matrix, all host floats.

    Attributes
    ----------
    mse : float
        Mean of (K' - K)^2 over the entries.
    max : float
        Largest ``|K' - K|``.
    frobenius : float
        ``|K' - K|_F / |K|_F``.
    spectral : float
        ``|K' - K|_2 / |K|_2``, largest singular values.
    """

    mse: float
    max: float
    frobenius: float
    spectral: float


class DeltaMethod(NamedTuple):
    """Second-order prediction for the ratio N/Z of two means.

    Attributes
    ----------
    bias, variance : array
        Of the ratio, shaped like N.
    relative_sd : array
        sd(Z)/Z, shaped like Z. The expansion means something while this is well below 1.
    """

    bias: Array
    variance: Array
    relative_sd: Array


def mean_and_ci(samples: Array, confidence: float = 0.95) -> Interval:
    """Mean over the first axis, with Student's interval: mean +- t_{R-1} s / sqrt(R).

    Source: Student (1908). The interval trusts the spread that the R samples show. Where their law has a tail that R
    samples do not reach (exponential features at large ``|x + y|``), it is too short, and the mean too small.

    Parameters
    ----------
    samples : array (R, ...)
        Independent along the first axis, R >= 2; float16, bfloat16, float32 or float64.
    confidence : float
        Probability of the interval, in (0, 1).

    Returns
    -------
    Interval
        Arrays (...), in the kind and dtype of `samples`.

    Raises
    ------
    ShapeError
        Fewer than two samples, or no first axis.
    EmptyInputError
        An axis of length 0.
    DTypeError
        Not an array of real floating dtype.
    ParameterError
        `confidence` outside (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import mean_and_ci
    >>> value, low, high = mean_and_ci(np.asarray([1.0, 2.0, 3.0]))
    >>> print(f"{value:.3f} in [{low:.3f}, {high:.3f}]")
    2.000 in [-0.484, 4.484]
    """
    xp = namespace(samples=samples)
    count = _redraws("samples", samples)
    mean = xp.mean(samples, axis=0)
    half = _student(count, confidence) * xp.std(samples, axis=0, correction=1) / count**0.5
    return Interval(mean, mean - half, mean + half)


def median_and_ci(samples: Array, confidence: float = 0.95) -> Interval:
    """Median over the first axis, between two order statistics: P(x_(j) <= median <= x_(R+1-j)) >= confidence.

    Source: Thompson (1936). j is the largest with 2 P(Binomial(R, 1/2) < j) <= 1 - confidence. It asks nothing of the
    law of the samples, and holds where they have no mean: the error of a ratio whose denominator comes near 0 has none.

    Parameters
    ----------
    samples : array (R, ...)
        Independent along the first axis; real floating dtype; R >= 6 at 95%.
    confidence : float
        Least probability of the interval, in (0, 1).

    Returns
    -------
    Interval
        Arrays (...), in the kind and dtype of `samples`.

    Raises
    ------
    ShapeError
        Too few samples for this confidence, or no first axis.
    EmptyInputError
        An axis of length 0.
    DTypeError
        Not an array of real floating dtype.
    ParameterError
        `confidence` outside (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import median_and_ci
    >>> value, low, high = median_and_ci(np.asarray([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 900.0]))
    >>> print(value, low, high)
    5.0 2.0 8.0
    """
    xp = namespace(samples=samples)
    count = _redraws("samples", samples)
    _check_confidence(confidence)
    j = int(np.sum(bdtr(np.arange(count // 2), count, 0.5) <= (1 - confidence) / 2))
    if j == 0:
        raise ShapeError(f"{count} samples give the median no interval of confidence {confidence}; at 95% it takes 6")
    ordered = xp.sort(samples, axis=0)
    median = (ordered[(count - 1) // 2, ...] + ordered[count // 2, ...]) / 2
    return Interval(median, ordered[j - 1, ...], ordered[count - j, ...])


def bias_and_ci(estimates: Array, exact: Array, confidence: float = 0.95) -> Interval:
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

    Returns
    -------
    Interval
        Arrays (...), in the kind and dtype of `estimates`.

    Raises
    ------
    ShapeError
        Fewer than two redraws, or shapes that do not broadcast.
    EmptyInputError
        An axis of length 0.
    DTypeError, MixedLibraryError
        Not arrays of real floating dtype, or not of one library.
    ParameterError
        `confidence` outside (0, 1).

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import bias_and_ci
    >>> value, low, high = bias_and_ci(np.asarray([1.0, 2.0, 3.0]), np.asarray(1.5))
    >>> print(f"{value:.3f} in [{low:.3f}, {high:.3f}]")
    0.500 in [-1.984, 2.984]
    """
    namespace(estimates=estimates, exact=exact)
    _redraws("estimates", estimates)
    _broadcasts("exact", exact, tuple(estimates.shape[1:]))
    return mean_and_ci(estimates - exact, confidence)


def empirical_variance(estimates: Array) -> Array:
    """Unbiased variance over the redraws, sum_r (estimate_r - mean)^2 / (R - 1).

    Source: the sample variance, with Bessel's correction.

    Parameters
    ----------
    estimates : array (R, ...)
        One estimate per redraw, R >= 2.

    Returns
    -------
    array (...)
        In the kind and dtype of `estimates`.

    Raises
    ------
    ShapeError
        Fewer than two redraws.
    EmptyInputError
        An axis of length 0.
    DTypeError
        Not an array of real floating dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import empirical_variance
    >>> print(empirical_variance(np.asarray([[1.0, 0.0], [3.0, 0.0]])))
    [2. 0.]
    """
    xp = namespace(estimates=estimates)
    _redraws("estimates", estimates)
    return xp.var(estimates, axis=0, correction=1)


def variance_ratio(estimates: Array, predicted: Array, confidence: float = 0.95) -> Interval:
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

    Returns
    -------
    Interval
        Arrays (), in the kind and dtype of `estimates`.

    Raises
    ------
    ShapeError
        Fewer than two redraws, or `predicted` is not shaped like one estimate.
    EmptyInputError
        An axis of length 0.
    DTypeError, MixedLibraryError
        Not arrays of real floating dtype, or not of one library.
    ParameterError
        A predicted variance that is not above 0, or `confidence` outside (0, 1).

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
    count = _redraws("estimates", estimates)
    if tuple(predicted.shape) != tuple(estimates.shape[1:]):
        raise ShapeError(
            f"predicted must have the shape of one estimate, {tuple(estimates.shape[1:])}; got {tuple(predicted.shape)}"
        )
    if not bool(xp.all(predicted > 0)):
        raise ParameterError("every predicted variance must be above 0; leave out the entries that are known exactly")
    squares = (estimates - xp.mean(estimates, axis=0)) ** 2 / predicted
    per_draw = xp.mean(xp.reshape(squares, (count, -1)), axis=1) * (count / (count - 1))  # (R,)
    return mean_and_ci(per_draw, confidence)


def gram_errors(estimate: Array, exact: Array) -> GramErrors:
    """Errors of a matrix: mean (K' - K)^2, ``max |K' - K|``, ``|K' - K|_F / |K|_F`` and ``|K' - K|_2 / |K|_2``.

    Source: the norms as defined. Computed on the host in float64; the spectral norms take two singular value
    decompositions, O(n^3).

    Parameters
    ----------
    estimate : array (n, k)
        K', real floating dtype.
    exact : array (n, k)
        K, not zero.

    Returns
    -------
    GramErrors
        Host floats.

    Raises
    ------
    ShapeError
        Not two matrices of one shape.
    EmptyInputError
        An axis of length 0.
    DTypeError, MixedLibraryError
        Not arrays of real floating dtype, or not of one library.
    ParameterError
        `exact` is zero, so that nothing is relative to it.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import gram_errors
    >>> errors = gram_errors(np.diag([3.0, 3.0]), np.diag([3.0, 4.0]))
    >>> print(errors.mse, errors.max, errors.frobenius, errors.spectral)
    0.25 1.0 0.2 0.25
    """
    namespace(estimate=estimate, exact=exact)
    if estimate.ndim != 2 or tuple(estimate.shape) != tuple(exact.shape):
        raise ShapeError(
            f"estimate and exact must be matrices of one shape; got {tuple(estimate.shape)} and {tuple(exact.shape)}"
        )
    for name, array in (("estimate", estimate), ("exact", exact)):
        _filled(name, array)
    k = to_numpy64(exact)
    size = float(np.linalg.norm(k))
    if size == 0:
        raise ParameterError("exact must not be the zero matrix: the errors are relative to it")
    difference = to_numpy64(estimate) - k
    return GramErrors(
        mse=float(np.mean(difference**2)),
        max=float(np.max(np.abs(difference))),
        frobenius=float(np.linalg.norm(difference)) / size,
        spectral=float(np.linalg.norm(difference, 2) / np.linalg.norm(k, 2)),
    )


def attention_mse(out: Array, exact: Array) -> Array:
    """Mean squared error of attention outputs over rows and values, mean_{i,c} (out_ic - exact_ic)^2.

    Source: the error that Choromanski et al. (2021), figure 4, plot.

    Parameters
    ----------
    out : array (..., n, e)
        Approximate outputs.
    exact : array, broadcastable to (..., n, e)
        Outputs of exact attention.

    Returns
    -------
    array (...)
        In the kind and dtype of the inputs.

    Raises
    ------
    ShapeError
        `out` has fewer than two axes, or shapes that do not broadcast.
    EmptyInputError
        An axis of length 0.
    DTypeError, MixedLibraryError
        Not arrays of real floating dtype, or not of one library.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import attention_mse
    >>> print(attention_mse(np.asarray([[1.0, 2.0]]), np.asarray([[1.0, 4.0]])))
    2.0
    """
    xp = namespace(out=out, exact=exact)
    _filled("out", out)
    if out.ndim < 2:
        raise ShapeError(f"out must be (..., n, e); got shape {tuple(out.shape)}")
    _broadcasts("exact", exact, tuple(out.shape))
    return xp.mean((out - exact) ** 2, axis=(-2, -1))


def row_kl(exact: Array, estimate: Array) -> Array:
    """Kullback-Leibler divergence of attention rows, KL_i = sum_j p_ij log(p_ij / q_ij) with 0 log 0 = 0.

    Source: Kullback and Leibler (1951). It is infinite where an estimated weight is 0 or below and the exact one is
    not: signed feature maps do that.

    Parameters
    ----------
    exact : array (..., n, l)
        p, rows of exact attention weights: not negative, summing to 1.
    estimate : array (..., n, l)
        q, rows of approximate weights, summing to 1.

    Returns
    -------
    array (..., n)
        In nats; the kind and dtype of the inputs.

    Raises
    ------
    ShapeError
        The shapes differ, or have no axis.
    EmptyInputError
        An axis of length 0.
    DTypeError, MixedLibraryError
        Not arrays of real floating dtype, or not of one library.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import row_kl
    >>> p = np.asarray([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25]])
    >>> print(row_kl(p, np.asarray([[0.25, 0.75, 0.0], [1.5, -0.25, -0.25]])).round(4))
    [0.1438    inf]
    """
    xp = namespace(exact=exact, estimate=estimate)
    _filled("exact", exact)
    _filled("estimate", estimate)
    if exact.ndim < 1 or tuple(exact.shape) != tuple(estimate.shape):
        raise ShapeError(
            f"exact and estimate must have one shape (..., n, l); got {tuple(exact.shape)} and {tuple(estimate.shape)}"
        )
    seen = exact > 0
    hidden = seen & (estimate <= 0)
    p = xp.where(seen, exact, xp.ones_like(exact))
    q = xp.where(seen & (estimate > 0), estimate, p)
    total = xp.sum(xp.where(seen, p * xp.log(p / q), xp.zeros_like(p)), axis=-1)
    return xp.where(xp.any(hidden, axis=-1), xp.full_like(total, xp.inf), total)


def ratio_delta_method(numerators: Array, denominators: Array) -> DeltaMethod:
    """Delta method for N/Z: bias ~ N Var(Z)/Z^3 - Cov(N,Z)/Z^2, variance ~ Var(N - c Z)/Z^2, c = N/Z.

    Source: the second-order Taylor expansion of a ratio (Casella and Berger 2002, section 5.5). Unbiased kernel entries
    give unbiased N and Z, but a biased N/Z. Moments are taken over the redraws.

    Parameters
    ----------
    numerators : array (R, ..., e)
        N of each redraw, R >= 2.
    denominators : array (R, ...)
        Z of each redraw.

    Returns
    -------
    DeltaMethod
        bias and variance (..., e), relative_sd (...).

    Raises
    ------
    ShapeError
        Fewer than two redraws, or `numerators` is not `denominators` with one more axis.
    EmptyInputError
        An axis of length 0.
    DTypeError, MixedLibraryError
        Not arrays of real floating dtype, or not of one library.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import ratio_delta_method
    >>> rng = np.random.default_rng(0)
    >>> z = 1 + 0.1 * rng.standard_normal(100_000)
    >>> prediction = ratio_delta_method(np.ones((100_000, 1)), z)      # E[1/Z] is about 1 + Var(Z)
    >>> print(prediction.bias.round(3), prediction.variance.round(3))
    [0.01] [0.01]
    """
    xp = namespace(numerators=numerators, denominators=denominators)
    count = _redraws("denominators", denominators)
    _redraws("numerators", numerators)
    if tuple(numerators.shape[:-1]) != tuple(denominators.shape):
        raise ShapeError(
            f"numerators must be (R, ..., e) for denominators (R, ...); got {tuple(numerators.shape)} "
            f"and {tuple(denominators.shape)}"
        )
    n = xp.mean(numerators, axis=0)  # (..., e)
    z = xp.mean(denominators, axis=0)[..., None]  # (..., 1)
    dn = numerators - n
    dz = denominators[..., None] - z
    var_z = xp.sum(dz**2, axis=0) / (count - 1)
    cov = xp.sum(dn * dz, axis=0) / (count - 1)
    ratio = n / z
    residual = dn - ratio * dz
    return DeltaMethod(
        bias=ratio * var_z / z**2 - cov / z**2,
        variance=xp.sum(residual**2, axis=0) / (count - 1) / z**2,
        relative_sd=(xp.sqrt(var_z) / xp.abs(z))[..., 0],
    )


def _student(count: int, confidence: float) -> float:
    _check_confidence(confidence)
    return float(stdtrit(count - 1, (1 + confidence) / 2))


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ParameterError(f"confidence must lie strictly between 0 and 1; got {confidence!r}")


def _filled(name: str, array: Array) -> None:
    check_floating(name, array)
    if 0 in tuple(array.shape):
        raise EmptyInputError(f"no axis of {name} may have length 0; got shape {tuple(array.shape)}")


def _redraws(name: str, array: Array) -> int:
    _filled(name, array)
    if array.ndim < 1 or array.shape[0] < 2:
        raise ShapeError(
            f"{name} must be (R, ...) with R >= 2 redraws on the first axis; got shape {tuple(array.shape)}"
        )
    return int(array.shape[0])


def _broadcasts(name: str, array: Array, shape: tuple[int, ...]) -> None:
    _filled(name, array)
    given = tuple(array.shape)
    fits = len(given) <= len(shape) and all(a in (1, b) for a, b in zip(given[::-1], shape[::-1], strict=False))
    if not fits:
        raise ShapeError(f"{name} must broadcast to {shape}; got shape {given}")
