"""Do so many redraws settle the variance of a sketch? From the moments of one factor, and the rate of collisions."""

from math import comb, factorial

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64

SKEWNESS = 0.4  # of a mean, as `where_settled` has it


def squares_settled(degree: int, cosine: Float64, terms: int, redraws: int, paired: bool) -> NDArray[np.bool_]:
    r"""Return whether Student's interval holds for the mean of R squared errors: :math:`\gamma^2 \leq 0.4^2 R`.

    The error is a mean of D independent products :math:`P = \prod_{i=1}^p t_i`, less its expectation, and
    :math:`\gamma` the skewness of its square. Moments of a factor t are those of Gaussian weights on unit rows of
    cosine c: with real weights :math:`E\,t^n = \sum_j (n! / (2^h h!))^2 c^j / j!`, h = (n - j)/2, over the j of n's
    parity (Isserlis 1918); with complex ones those of parallel rows, :math:`E\,t^n = n!`, which are the largest. Signs
    and roots of unity have smaller ones, so this is on the safe side of them.
    """
    factors = (np.full_like(cosine, factorial(n)) if paired else _gaussian(n, cosine) for n in range(1, 7))
    raw = [np.ones_like(cosine), *(factor**degree for factor in factors)]
    central = [sum(comb(n, k) * raw[k] * (-raw[1]) ** (n - k) for k in range(n + 1)) for n in range(7)]
    d, (m2, m3, m4, m6) = terms, (central[n] for n in (2, 3, 4, 6))
    second = m2 / d
    fourth = (3 * (d - 1) * m2**2 + m4) / d**3
    sixth = (15 * (d - 1) * (d - 2) * m2**3 + (d - 1) * (10 * m3**2 + 15 * m2 * m4) + m6) / d**5
    third = sixth - 3 * fourth * second + 2 * second**3  # central, of the square
    skewness = third / np.maximum(fourth - second**2, 1e-300) ** 1.5
    return np.asarray(skewness**2 <= SKEWNESS**2 * redraws, dtype=np.bool_)


def collisions_settled(degree: int, rows: Float64, buckets: int, redraws: int) -> NDArray[np.bool_]:
    r"""Return whether redraws see enough collisions of a count sketch: of k coordinates each has p k (k - 1) / (2 m).

    Rows without a collision are sketched without an error, so errors are rare where k is small: the mean of R counts of
    rate q has the skewness :math:`(R q)^{-1/2}`. Coordinates count by :math:`k = 1 / \sum_i x_i^4`, for unit rows.
    """
    used = 1 / np.sum(rows**4, axis=1)
    rate = degree * used * (used - 1) / (2 * buckets)
    return np.asarray(SKEWNESS**2 * redraws * rate >= 1, dtype=np.bool_)


def _gaussian(n: int, cosine: Float64) -> Float64:
    """Return E (uv)^n of standard normal u, v of this correlation."""
    total = np.zeros_like(cosine)
    for j in range(n % 2, n + 1, 2):
        half = (n - j) // 2
        total += (factorial(n) / (2**half * factorial(half))) ** 2 * cosine**j / factorial(j)
    return total
