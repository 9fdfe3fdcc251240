"""The two hypergeometric functions behind every isotropic random feature, vectorised, for parameters up to the thousands.

A positive argument gives a sum of positive terms, started at the largest one: it has a logarithm that never overflows, right to
1e-14 of its size. At a negative argument both functions are averages of bounded quantities, right to 1e-14 in absolute
terms; there SciPy's 1F1 is used as it is, while its 0F1 is infinite or NaN once b nears 128. A non-finite argument gives NaN.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy.special import gammaln

from kernattn._array import Host

__all__ = ["hyp0f1", "hyp1f1", "log_hyp0f1", "log_hyp1f1"]

EPS = 2.0**-54
FIRST_TERM = 32  # a series whose largest term comes before this one starts at term 0, which is exactly 1
RAYLEIGH_TERMS = 60  # that series runs at arguments up to 1/2


def hyp0f1(b: float, x: ArrayLike) -> Host:
    """0F1(; b; x) = sum_k x^k / ((b)_k k!) for b > 0 and x of either sign; inf beyond the range of float64."""
    x = np.asarray(x, dtype=np.float64)
    result = _exp(log_hyp0f1(b, x))
    minus = np.isfinite(x) & (x < 0.0)
    result[minus] = _hyp0f1_of_minus(b, -x[minus])
    return result


def hyp1f1(a: float, b: float, x: ArrayLike) -> Host:
    """1F1(a; b; x) = sum_k (a)_k x^k / ((b)_k k!) for a, b > 0 and x of either sign; inf beyond the range of float64."""
    x = np.asarray(x, dtype=np.float64)
    result = _exp(log_hyp1f1(a, b, x))
    minus = np.isfinite(x) & (x < 0.0)
    result[minus] = special.hyp1f1(a, b, x[minus])
    return result


def log_hyp0f1(b: float, x: ArrayLike) -> Host:
    """log 0F1(; b; x) for b > 0 and x >= 0; NaN for x < 0."""
    return _log_series(np.asarray(x, dtype=np.float64), lower=b)


def log_hyp1f1(a: float, b: float, x: ArrayLike) -> Host:
    """log 1F1(a; b; x) for a, b > 0 and x >= 0; NaN for x < 0."""
    return _log_series(np.asarray(x, dtype=np.float64), lower=b, upper=a)


def _exp(log: Host) -> Host:
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(log))


def _log_series(x: Host, lower: float, upper: float | None = None) -> Host:
    result = np.full(x.shape, np.nan)
    plus = np.isfinite(x) & (x >= 0.0)
    result[plus] = _log_positive_series(x[plus], lower, upper)
    return result


def _log_positive_series(x: Host, lower: float, upper: float | None) -> Host:
    """log sum_k T_k, with T_0 = 1 and T_{k+1} = T_k x (upper + k) / ((lower + k) (k + 1)), from the largest term both ways."""

    def ratio(k: Host, x: Host) -> Host:
        numerator = x if upper is None else x * (upper + k)
        return numerator / ((lower + k) * (k + 1.0))

    # ratio(k) = 1 where k^2 + p k + q = 0
    p = lower + 1.0 - (0.0 if upper is None else x)
    q = lower - (x if upper is None else x * upper)
    peak = np.floor(np.sqrt(np.maximum(p * p / 4.0 - q, 0.0)) - p / 2.0)
    peak = np.where(peak < FIRST_TERM, 0.0, peak)
    log_peak = (
        peak * np.log(np.where(peak > 0.0, x, 1.0)) - gammaln(peak + 1.0) - (gammaln(lower + peak) - gammaln(lower))
    )
    if upper is not None:
        log_peak += gammaln(upper + peak) - gammaln(upper)

    others = np.zeros_like(x)  # sum_k T_k / T_peak - 1
    k, term = peak, np.ones_like(x)
    while np.any(term > EPS * others):
        term = term * ratio(k, x)
        others += term
        k = k + 1.0

    inner = peak > 0.0
    k, term, x, sums = peak[inner], np.ones(np.count_nonzero(inner)), x[inner], others[inner]
    while np.any(term > EPS * sums):
        k = k - 1.0
        term = np.where(k >= 0.0, term / ratio(np.maximum(k, 0.0), x), 0.0)
        sums += term
    others[inner] = sums
    return log_peak + np.log1p(others)


def _hyp0f1_of_minus(b: float, y: Host) -> Host:
    """0F1(; b; -s^2 / 4) = Gamma(b) (2 / s)^nu J_nu(s), nu = b - 1; before the first zero of J_nu, its product over all zeros."""
    q = 4.0 * y / (b * (b + 4.0))  # s^2 over a lower bound of the squared first zero
    result = np.exp(-np.polynomial.polynomial.polyval(q, _rayleigh(b)))
    far = q > 0.5
    s = 2.0 * np.sqrt(y[far])
    bessel = special.jv(b - 1.0, s)
    with np.errstate(divide="ignore"):
        result[far] = np.sign(bessel) * np.exp(np.log(np.abs(bessel)) + gammaln(b) + (b - 1.0) * np.log(2.0 / s))
    return np.asarray(result)


@lru_cache(maxsize=64)
def _rayleigh(b: float) -> Host:
    """Coefficients of -log prod_j (1 - q b (b + 4) / zero_j^2) in powers of q, by Rayleigh's recurrence for sum_j zero_j^-2k."""
    sums = np.zeros(RAYLEIGH_TERMS + 1)
    sums[1] = (b + 4.0) / 4.0
    for k in range(2, RAYLEIGH_TERMS + 1):
        sums[k] = sums[1:k] @ sums[k - 1 : 0 : -1] / (b - 1.0 + k)
    sums[1:] /= np.arange(1, RAYLEIGH_TERMS + 1)
    return sums
