r"""How many frequencies make an estimate as good as asked: tail bounds over blocks that are independent.

An estimate is :math:`S = \sum_j w_j T_j`, T_j the mean of block j of its terms and :math:`w_j` the block's share of
them. With terms of size at most c and mean :math:`\mu`, three bounds hold for :math:`P(|S - E S| \ge \epsilon)`:

- Chebyshev, :math:`\mathrm{Var}\,S / \epsilon^2`, for any terms;
- Hoeffding (1963), :math:`2 \exp(-\epsilon^2 / (2 c^2 \sum_j w_j^2))`;
- Bernstein, :math:`2 \exp(-\epsilon^2 / (2 \mathrm{Var}\,S + \frac23 \max_j w_j (c + |\mu|) \epsilon))`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import final

import numpy as np

from kernattn._array import Host
from kernattn.errors import NoClosedForm, ParameterError
from kernattn.projections import Pair, Projection

__all__ = ["Terms", "smallest_number", "terms_of"]

MOST = 2**53  # frequencies
HOPELESS = (
    "no number of features up to 2^53 is certified: the variance of these pairs, about e^(|x + y|^2) of the squared "
    "kernel for exponential features, is beyond what averaging can reach; allow a larger error or scale the inputs"
)
ROUNDING = 1e-9  # of the mean: below it is no bias but rounding


@final
@dataclass(frozen=True, eq=False)
class Terms:
    """One frequency's term of the estimates of P pairs, what is asked of their errors, and how terms depend."""

    mean: Host  # (P,)
    size: Host | None  # (P,) largest size of a term; None where there is none
    error: Host  # (P,) allowed distance from the mean
    variance: Callable[[int], Host] | None  # of the mean of one block of that many terms, (P,)
    unit: int  # terms of a whole block

    def failure(self, whole: int, rest: int) -> float:
        """Bound the probability that any pair errs, with so many whole blocks and a last one of `rest` terms."""
        number = whole * self.unit + rest
        shares = np.array([self.unit * (whole > 0), rest]) / number
        squares = whole * shares[0] ** 2 + shares[1] ** 2
        bounds = []
        with np.errstate(over="ignore", invalid="ignore"):
            if self.variance is not None:
                variance = np.zeros_like(self.error)
                for size, share, count in ((self.unit, shares[0], whole), (rest, shares[1], 1)):
                    if size and count:
                        variance = variance + count * share**2 * self.variance(size)
                bounds.append(variance / self.error**2)
            if self.size is not None:
                bounds.append(2 * np.exp(-(self.error**2) / (2 * self.size**2 * squares)))
            if self.size is not None and self.variance is not None:
                slack = shares.max() * (self.size + np.abs(self.mean)) * self.error
                bounds.append(2 * np.exp(-(self.error**2) / (2 * variance + 2 / 3 * slack)))
        least = np.min(bounds, axis=0)
        return float(np.sum(np.where(np.isnan(least), np.inf, least)))


def terms_of(
    projection: Projection,
    d: int,
    mean: Host,
    second: Host,
    cross: Callable[[Pair], Host],
    size: Host | None,
    bias: Host,
    error: float,
) -> Terms:
    """Return the terms of P pairs from their moments, (P,) each; the bias is taken off the error."""
    if not np.isfinite([mean, bias]).all():
        raise ParameterError(HOPELESS)
    bias = np.where(np.abs(bias) <= ROUNDING * np.abs(mean), 0.0, np.abs(bias))
    if not np.max(bias) < error:
        raise ParameterError(
            "error must exceed the bias, which no number of features takes away: for one of these pairs it is "
            f"{np.max(bias):.3g}; got error = {error!r}"
        )
    blocks = projection.blocks(8 << d.bit_length(), d)
    if len(blocks) == 1:
        raise NoClosedForm(f"no bound is known with {projection!r}: all rows depend on each other")
    covariance = cache(lambda pair: cross(pair) - mean**2)

    def variance(number: int) -> Host:
        total = (second - mean**2) / number
        for pair, count in projection.pairs(number, d).items():
            total = total + covariance(pair) * count / number**2
        return np.asarray(np.maximum(total, 0.0))

    try:
        variance(blocks[0])
    except NoClosedForm:
        if size is None:
            raise
        return Terms(mean, size, error - bias, None, blocks[0])
    return Terms(mean, size, error - bias, variance, blocks[0])


def smallest_number(terms: Terms, projection: Projection, d: int, failure: float) -> int:
    """Return the least number of terms at which the bound is at most `failure`.

    More whole blocks are always better, and where rows of a block are exchangeable a number between two whole ones is
    never better than the next whole one: so the number of blocks is found by bisection, the number itself among those
    that end in the last one.
    """
    high = 1
    while terms.failure(high, 0) > failure:
        high *= 2
        if high * terms.unit > MOST:
            raise ParameterError(HOPELESS)
    low = high // 2  # whole blocks that are too few
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if terms.failure(middle, 0) <= failure else (middle, high)
    for rest in range(1, terms.unit):
        if _allowed(projection, rest, d) and terms.failure(high - 1, rest) <= failure:
            return (high - 1) * terms.unit + rest
    return high * terms.unit


def _allowed(projection: Projection, number: int, d: int) -> bool:
    try:
        return bool(projection.blocks(number, d))
    except ParameterError:
        return False
