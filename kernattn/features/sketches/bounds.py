r"""How many features make the estimates of pairs as good as asked.

An estimate is :math:`S = \sum_j w_j T_j` over independent blocks j of features, w_j the block's share of them. With
terms of size at most c and mean :math:`\mu`, the probability that :math:`|S - \mu| \ge \epsilon` is at most

- Chebyshev: :math:`\mathrm{Var}\,S / \epsilon^2`, for any terms;
- Hoeffding (1963): :math:`2 \exp(-\epsilon^2 / (2 c^2 \sum_j w_j^2))`;
- Bernstein: :math:`2 \exp(-\epsilon^2 / (2 \mathrm{Var}\,S + \frac23 \max_j w_j (c + |\mu|) \epsilon))`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernattn._array import Host
from kernattn.errors import ParameterError

__all__ = ["failure", "least_number"]

MOST = 2**53  # features


def failure(variance: Host, mean: Host, size: Host | None, error: float, features: int, block: int) -> float:
    """Bound the probability that any of the estimates errs.

    Parameters
    ----------
    variance, mean : (P,) array
        Of the estimates.
    size : (P,) array or None
        Largest size of a term; None where there is none.
    error : float
        The error allowed.
    features : int
        Number of features.
    block : int
        Size of a whole block of features that depend on each other.

    Returns
    -------
    float
        The bound: the best inequality of each pair, summed over the pairs.
    """
    bounds = [variance / error**2]
    if size is not None:
        whole, rest = divmod(features, block)
        squares = (whole * block**2 + rest**2) / features**2
        slack = min(block, features) / features * (size + np.abs(mean)) * error
        bounds.append(2 * np.exp(-(error**2) / (2 * size**2 * squares)))
        bounds.append(2 * np.exp(-(error**2) / (2 * variance + 2 / 3 * slack)))
    return float(np.sum(np.min(bounds, axis=0)))


def least_number(enough: Callable[[int], bool], block: int, step: int) -> int:
    """Return the least number that is enough among whole blocks, or one within its last block.

    Parameters
    ----------
    enough : callable
        Whether so many features are enough; more whole blocks are always better.
    block : int
        Size of a whole block.
    step : int
        Numbers of features are multiples of it.

    Returns
    -------
    int
        The number.

    Raises
    ------
    ParameterError
        If no number up to 2^53 is enough.
    """
    high = 1
    while not enough(high * block):
        high *= 2
        if high * block > MOST:
            raise ParameterError("no number of features up to 2^53 is certified; ask for less, or scale the inputs")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle * block) else (middle, high)
    last = range((high - 1) * block + step, high * block, step)
    return next((m for m in last if enough(m)), high * block)
