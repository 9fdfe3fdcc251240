r"""How many features make an estimate as good as asked: tail bounds over blocks that are independent.

An estimate is :math:`S = \sum_j w_j T_j`, T_j the mean of block j of its terms and :math:`w_j` the block's share of
them. With terms of size at most c and mean :math:`\mu`, three bounds hold for :math:`P(|S - E S| \ge \epsilon)`:

- Chebyshev, :math:`\mathrm{Var}\,S / \epsilon^2`, for any terms;
- Hoeffding (1963), :math:`2 \exp(-\epsilon^2 / (2 c^2 \sum_j w_j^2))`;
- Bernstein, :math:`2 \exp(-\epsilon^2 / (2 \mathrm{Var}\,S + \frac23 \max_j w_j (c + |\mu|) \epsilon))`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import finite_number, positive_number
from kernattn.errors import NoClosedForm, ParameterError
from kernattn.projections import Pair, Projection

MOST = 2**53  # terms
HOPELESS = (
    "no number of features up to 2^53 is certified: the variance of these pairs, about e^(|x + y|^2) of the squared "
    "kernel for exponential features, is beyond what averaging can reach; allow a larger error or scale the inputs"
)
ROUNDING = 1e-9  # of the mean: below it is no bias but rounding


@final
@dataclass(frozen=True, eq=False)
class Terms:
    """What is known of the estimates of P pairs by means of n terms, at every n: of one design, but of any size."""

    number: int  # n of the map itself
    features: Callable[[int], int]  # M at n
    kernel: Float64  # (P,)
    bias: Callable[[int], Float64]  # at n, (P,)
    variance: Callable[[int], Float64] | None  # at n, (P,); None where it is not known
    size: Float64 | None = None  # (P,) largest size of a term; None where there is none
    block: int = 1  # terms of a whole block
    part: Callable[[int], bool] = lambda rest: True  # whether a last block can have so many

    def failure(self, number: int, error: float) -> float:
        """Bound the probability that any pair of so many terms is off by the error, above its bias."""
        whole, rest = divmod(number, self.block)
        squares, share = (whole * self.block**2 + rest**2) / number**2, min(self.block, number) / number
        bias = self.bias(number)
        mean = self.kernel + bias
        left = error - np.where(np.abs(bias) <= ROUNDING * np.abs(mean), 0.0, np.abs(bias))
        bounds = [np.ones_like(left)]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            if self.variance is not None:
                variance = np.maximum(self.variance(number), 0.0)
                bounds.append(variance / left**2)
            if self.size is not None:
                bounds.append(2 * np.exp(-(left**2) / (2 * self.size**2 * squares)))
            if self.size is not None and self.variance is not None:
                slack = share * (self.size + np.abs(mean)) * left
                bounds.append(2 * np.exp(-(left**2) / (2 * variance + 2 / 3 * slack)))
        least = np.min(np.nan_to_num(bounds, nan=1.0), axis=0)
        return float(np.sum(np.where(left > 0, least, np.inf)))


def of_frequencies(
    projection: Projection,
    shape: tuple[int, int],  # of the map's frequencies
    features: int,  # of one frequency
    moments: tuple[Float64, Float64, Callable[[Pair], Float64]],  # E t, E t^2 (P,); E t t' of a pair of frequencies
    bias: Float64,  # (P,)
    size: Float64 | None,  # (P,) largest size of a term; None where there is none
) -> Terms:
    """Return the terms of P pairs, one for each frequency; raise where nothing bounds their errors."""
    (number, d), (mean, second, cross) = shape, moments
    sizes = projection.blocks(8 << d.bit_length(), d)
    if len(sizes) == 1:
        raise NoClosedForm(f"no bound is known with {projection!r}: all rows depend on each other")
    block = sizes[0]
    covariance = cache(lambda pair: cross(pair) - mean**2)

    @cache
    def of_block(rows: int) -> Float64:
        total = (second - mean**2) / rows
        for pair, count in projection.pairs(rows, d).items():
            total = total + covariance(pair) * count / rows**2
        return np.asarray(np.maximum(total, 0.0))

    def variance(number: int) -> Float64:
        whole, rest = divmod(number, block)
        total = whole * (block / number) ** 2 * of_block(block) if whole else np.zeros_like(mean)
        return total + (rest / number) ** 2 * of_block(rest) if rest else total

    def part(rest: int) -> bool:
        try:
            return bool(projection.blocks(rest, d))
        except ParameterError:
            return False

    known: Callable[[int], Float64] | None = variance
    try:
        of_block(block)
    except NoClosedForm:
        if size is None:
            raise
        known = None
    return Terms(number, lambda n: n * features, mean - bias, lambda n: bias, known, size, block, part)


def check_request(error: float, probability: float) -> None:
    """Raise unless the error is a positive number and the probability one strictly between 0 and 1."""
    positive_number("error", error)
    if not 0 < finite_number("probability", probability) < 1:
        raise ParameterError(f"probability must lie strictly between 0 and 1; got {probability!r}")


def certified_number(terms: Terms, error: float, probability: float) -> int:
    """Return the number of features at which no pair is off by the error but with the probability's rest.

    More whole blocks are always better, and where rows of a block are exchangeable a number between two whole ones is
    never better than the next whole one: so the number of blocks is found by bisection, the number itself among those
    that end in the last one.
    """
    if not np.isfinite(terms.kernel).all():
        raise ParameterError(HOPELESS)
    bias = np.max(np.abs(terms.bias(MOST)))
    if not bias < error:
        raise ParameterError(
            "error must exceed the bias, which no number of features takes away: for one of these pairs it is "
            f"{bias:.3g}; got error = {error!r}"
        )
    block, allowed = terms.block, 1 - probability
    high = 1
    while terms.failure(high * block, error) > allowed:
        high *= 2
        if high * block > MOST:
            raise ParameterError(HOPELESS)
    low = high // 2  # whole blocks that are too few
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if terms.failure(middle * block, error) <= allowed else (middle, high)
    last = (n for n in range(1, block) if terms.part(n))
    whole = (high - 1) * block
    return terms.features(next((whole + n for n in last if terms.failure(whole + n, error) <= allowed), high * block))
