"""Tails of weighted sums of squares of normals, to which the statistics of tests on features converge."""

from math import copysign, exp, pi, sqrt

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy_scipy import special

NEAR = 1e-4  # standard deviations of the mean, within which the two terms of the formula cancel
FAR = 3000.0  # largest weights, beyond which exp(-q / 4) 2^(k / 2), a bound of the tail, is 0 in float64
STEPS = 200  # halvings at most of where the saddlepoint may be


def upper_tail(value: float, weights: Float64) -> float:
    r"""Return :math:`P(\sum_i \lambda_i z_i^2 > q)` of independent standard normals, weights (k,) above 0.

    Lugannani and Rice's (1980) saddlepoint formula, as Kuonen (1999) takes it, is right to a tenth of the tail, far
    out as well.
    """
    if not value > 0:
        return 1.0
    largest = float(np.max(weights))
    q, weights = value / largest, weights / largest
    if len(weights) == 1:
        return 2 * float(special.ndtr(-sqrt(q)))
    if q > FAR + 2 * len(weights):
        return 0.0
    mean, variance = float(np.sum(weights)), 2 * float(np.sum(weights**2))
    if abs(q - mean) < NEAR * sqrt(variance):
        return float(0.5 - 8 * np.sum(weights**3) / (6 * sqrt(2 * pi) * variance**1.5))
    t = _saddlepoint(q, weights, mean)
    left = 1 - 2 * t * weights
    w = copysign(sqrt(2 * t * q + float(np.sum(np.log(left)))), t)
    v = t * sqrt(2 * float(np.sum((weights / left) ** 2)))
    return float(np.clip(special.ndtr(-w) + exp(-(w**2) / 2) / sqrt(2 * pi) * (1 / v - 1 / w), 0.0, 1.0))


def _saddlepoint(q: float, weights: Float64, mean: float) -> float:
    """Return t with sum of weights / (1 - 2 t weights) = q, for weights up to 1, by halving."""
    low, high = (0.0, (1 - 1 / q) / 2) if q > mean else (-len(weights) / (2 * q), 0.0)
    for _ in range(STEPS):
        t = (low + high) / 2
        if not low < t < high:
            break
        low, high = (t, high) if np.sum(weights / (1 - 2 * t * weights)) < q else (low, t)
    return (low + high) / 2
