"""How far from normal one term of an estimate is, which says how many terms make an average normal."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64, without_warnings


class Tails(NamedTuple):
    """Of the estimates of P pairs: each is a mean of terms, as if these were independent."""

    squared_skewness: Float64  # (P,) of one term: 0 where it is constant, infinite or NaN where it has no such moment
    terms: int  # of one draw


@without_warnings
def squared_skewness(variance: Float64, third: Float64) -> Float64:
    r"""Return :math:`\mu_3^2 / \mu_2^3` of the central moments of a term, 0 where there is no variance."""
    return np.asarray(np.where(variance > 0, third**2 / np.maximum(variance, 0.0) ** 3, 0.0))


@without_warnings
def squared_skewness_of_logs(log_power: Callable[[int], Float64]) -> Float64:
    r"""Return :math:`\mu_3^2 / \mu_2^3` of a positive term t, of :math:`\log E\,t^k` for k = 1, 2 and 3.

    With :math:`a = E\,t^2 / (E\,t)^2 - 1` and :math:`b = E\,t^3 / (E\,t)^3 - 1` it is :math:`(b - 3a)^2 / a^3`.
    """
    first = log_power(1)
    second, third = np.expm1(log_power(2) - 2 * first), np.expm1(log_power(3) - 3 * first)
    return squared_skewness(second, third - 3 * second)
