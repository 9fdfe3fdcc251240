"""The hypergeometric functions behind every isotropic random feature, vectorised, for parameters up to the thousands.

At a positive argument they are sums of positive terms; summed from the largest one both ways, or by their asymptotic
series where that has converged, they have a logarithm that does not overflow and is right to about 1e-14 of its size.
At a negative argument they are averages of numbers in [-1, 1], right to about 1e-14 in absolute terms: SciPy's 1F1 is
(but is slow far out), while its 0F1 is infinite or NaN at a large b.
"""

from functools import lru_cache

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy_scipy import special

EPS = 2.0**-54
FIRST_TERM = 128  # a series whose largest term comes before this one starts at term 0, which is exactly 1
RAYLEIGH_TERMS = 60  # that series runs at arguments up to 1/2
ASYMPTOTIC_TERMS = 30
FAR = 1000.0  # the least argument of an asymptotic series


def log_hyp0f1(b: float, x: Float64) -> Float64:
    """Return log 0F1(; b; x), 0F1 = sum_k x^k / ((b)_k k!), for b > 0 and finite x >= 0.

    With nu = b - 1 and s = 2 x^(1/2) it is Gamma(b) (2 / s)^nu I_nu(s); Hankel's series is DLMF 10.40.1.
    """
    p, q, s = b - 0.5, 1.5 - b, 2.0 * np.sqrt(x)  # I_nu(s) ~ e^s (2 pi s)^(-1/2) 2F0(nu + 1/2, 1/2 - nu; 1 / 2s)
    far = 2.0 * s > max(FAR, abs(p * q))
    result = np.empty_like(x)
    result[~far] = _log_series(x[~far], b, None)
    s = s[far]
    front = s - np.log(2.0 * np.pi * s) / 2.0 + special.gammaln(b) - (b - 1.0) * np.log(s / 2.0)
    result[far] = front + _log_2f0(p, q, 0.5 / s)
    return result


def log_hyp1f1(a: float, b: float, x: Float64) -> Float64:
    """Return log 1F1(a; b; x), 1F1 = sum_k (a)_k x^k / ((b)_k k!), for a, b > 0 and finite x >= 0.

    The asymptotic series is DLMF 13.7.1.
    """
    p, q = b - a, 1.0 - a
    far = x > max(FAR, abs(p * q))
    result = np.empty_like(x)
    result[~far] = _log_series(x[~far], b, a)
    x = x[far]
    result[far] = x + (a - b) * np.log(x) + special.gammaln(b) - special.gammaln(a) + _log_2f0(p, q, 1.0 / x)
    return result


def hyp1f1_of_minus(a: float, b: float, y: Float64) -> Float64:
    """Return 1F1(a; b; -y) for a, b > 0 and finite y >= 0.

    The asymptotic series is DLMF 13.7.2; it vanishes with 1 / Gamma(b - a) where b - a is an integer below 1.
    """
    p, q = a, a - b + 1.0
    far = y > max(FAR, abs(p * q))
    result = special.hyp1f1(a, b, np.where(far, 0.0, -y))
    if b - a <= 0.0 and float(b - a).is_integer():
        result[far] = 0.0
    else:
        front = special.gammaln(b) - special.gammaln(b - a) - a * np.log(y[far])
        result[far] = special.gammasgn(b - a) * np.exp(front + _log_2f0(p, q, 1.0 / y[far]))
    return np.asarray(result)


def hyp0f1_of_minus(b: float, y: Float64) -> Float64:
    """Return 0F1(; b; -y) for b > 0 and finite y >= 0.

    With nu = b - 1 and s^2 = 4 y it is Gamma(b) (2 / s)^nu J_nu(s). Before the first zero of J_nu the logarithm is a
    power series; past it the two factors are taken together, as either alone may leave the range of float64.
    """
    q = 4.0 * y / (b * (b + 4.0))  # s^2 over a lower bound of the squared first zero
    far = q > 0.5
    result = np.exp(-np.polynomial.polynomial.polyval(np.where(far, 0.0, q), _rayleigh(b)))
    s = 2.0 * np.sqrt(y[far])
    bessel = special.jv(b - 1.0, s)
    with np.errstate(divide="ignore"):
        result[far] = np.sign(bessel) * np.exp(
            np.log(np.abs(bessel)) + special.gammaln(b) + (b - 1.0) * np.log(2.0 / s)
        )
    return np.asarray(result)


@lru_cache(maxsize=64)
def _rayleigh(b: float) -> Float64:
    """Return the coefficients of -log prod_j (1 - q b (b + 4) / zero_j^2) in powers of q.

    Rayleigh's recurrence for the sums over zeros, (nu + k) S_k = sum_{0 < j < k} S_j S_{k-j} with S_1 = 1 / (4 (nu +
    1)).
    """
    sums = np.zeros(RAYLEIGH_TERMS + 1)  # S_k (b (b + 4))^k
    sums[1] = (b + 4.0) / 4.0
    for k in range(2, RAYLEIGH_TERMS + 1):
        sums[k] = sums[1:k] @ sums[k - 1 : 0 : -1] / (b - 1.0 + k)
    sums[1:] /= np.arange(1, RAYLEIGH_TERMS + 1)
    return sums


def _log_series(x: Float64, lower: float, upper: float | None) -> Float64:
    """Return log sum_k T_k, with T_0 = 1 and T_{k+1} = T_k x (upper + k) / ((lower + k) (k + 1)), x >= 0."""

    def ratio(k: Float64, x: Float64) -> Float64:
        numerator = x if upper is None else x * (upper + k)
        return numerator / ((lower + k) * (k + 1.0))

    # ratio(k) = 1 where k^2 + p k + q = 0
    p = lower + 1.0 - (0.0 if upper is None else x)
    q = lower - (x if upper is None else x * upper)
    peak = np.floor(np.sqrt(np.maximum(p * p / 4.0 - q, 0.0)) - p / 2.0)
    peak = np.where(peak < FIRST_TERM, 0.0, peak)
    log_peak = peak * np.log(np.where(peak > 0.0, x, 1.0)) - special.gammaln(peak + 1.0)
    log_peak += special.gammaln(lower) - special.gammaln(lower + peak)
    if upper is not None:
        log_peak += special.gammaln(upper + peak) - special.gammaln(upper)

    others = np.zeros_like(x)  # sum_k T_k / T_peak - 1
    k, term = peak, np.ones_like(x)
    while np.any(term > EPS * others):
        term = term * ratio(k, x)
        others += term
        k = k + 1.0

    inner = peak > 0.0
    k, term, x, below = peak[inner], np.ones(np.count_nonzero(inner)), x[inner], others[inner]
    while np.any(term > EPS * below):
        k = k - 1.0
        term = np.where(k >= 0.0, term / ratio(np.maximum(k, 0.0), x), 0.0)
        below += term
    others[inner] = below
    return np.asarray(log_peak + np.log1p(others))


def _log_2f0(p: float, q: float, u: Float64) -> Float64:
    """Return log sum_k (p)_k (q)_k u^k / k!, the first terms of a series that need not converge; |p q u| <= 1."""
    total, term = np.ones_like(u), np.ones_like(u)
    for k in range(ASYMPTOTIC_TERMS):
        term = term * (p + k) * (q + k) * u / (k + 1.0)
        total += term
    return np.asarray(np.log(total))
