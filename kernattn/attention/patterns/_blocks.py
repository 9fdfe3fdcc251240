"""Patterns of whole blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from kernattn._runtime.checks import array_of, positive_integer, shown
from kernattn._runtime.random import RNG, generator
from kernattn.attention.patterns._base import Pattern
from kernattn.attention.patterns._interval_pattern import IntervalPattern
from kernattn.attention.patterns._intervals import Head, Integers, Intervals, whole_number
from kernattn.errors import ParameterError


def _find_blocks(n: int, length: int, block: int) -> tuple[Integers, Integers]:
    """Return the blocks in which the last n tokens stand, and their runs of rows."""
    numbers = np.arange((length - n) // block, -(-length // block))
    return numbers, np.append(np.maximum(numbers * block - (length - n), 0), n)


@dataclass(frozen=True)
class BlockPermutation(IntervalPattern):
    """j // block = p[i // block]."""

    block: int
    permutations: tuple[tuple[int, ...], ...]
    _long: ClassVar[bool] = True

    def _heads(self, n: int, length: int) -> tuple[Head, ...]:
        blocks = len(self.permutations[0])
        if blocks != -(-length // self.block):
            raise ParameterError(
                f"permutations of {blocks} blocks of {self.block} are for l from {(blocks - 1) * self.block + 1} to "
                f"{blocks * self.block}; got l = {length}"
            )
        numbers, runs = _find_blocks(n, length, self.block)
        seen = np.array(self.permutations)[:, numbers] * self.block
        return tuple((Intervals(low[None], low[None] + self.block, runs),) for low in seen)


@dataclass(frozen=True)
class BigBird(IntervalPattern):
    """Blocks 0, i - 1, i, i + 1, the last one, and random others; the first and the last block see all."""

    block: int
    random: int
    seed: int
    heads: int

    @property
    def _static(self) -> bool:
        return False

    def _heads(self, n: int, length: int) -> tuple[Head, ...]:
        numbers, runs = _find_blocks(n, length, self.block)
        last = -(-length // self.block) - 1
        i = np.arange(last + 1)
        near = np.stack([np.zeros_like(i), np.maximum(i - 1, 0), i, np.minimum(i + 1, last), np.full_like(i, last)])
        near = _drop_repeats(near, last + 1)
        rng = np.random.default_rng(self.seed)
        heads = []
        for _ in range(self.heads):
            others = _draw_others(near, last + 1, self.random, rng)
            seen = _drop_repeats(np.concatenate([near, others]), last + 1)[:, numbers]
            low, high = seen * self.block, (seen + 1) * self.block
            dense = (numbers == 0) | (numbers == last)
            high[:, dense] = low[:, dense]
            low[0, dense], high[0, dense] = 0, length
            heads.append((Intervals(low, high, runs),))
        return tuple(heads)


def _drop_repeats(blocks: Integers, end: int) -> Integers:
    """Return the blocks of each column ascending, `end` in place of those that are there already."""
    blocks = np.sort(blocks, axis=0)
    again = np.concatenate([np.zeros_like(blocks[:1], bool), blocks[1:] == blocks[:-1]])
    return np.sort(np.where(again, end, blocks), axis=0)


def _draw_others(taken: Integers, end: int, count: int, rng: np.random.Generator) -> Integers:
    """Return for each column so many blocks that are not taken, uniformly; `end` where there are no more."""
    free = end - np.sum(taken < end, axis=0)
    count = min(count, int(np.max(free)))
    chosen: list[Integers] = []
    for t in range(count):
        x = np.floor(rng.random(len(free)) * np.maximum(free - t, 1)).astype(np.int64)
        x = np.where(t < free, _skip(x, chosen), 2 * end)
        chosen.append(x)
    blocks = [np.where(x < free, _skip(x, list(taken)), end) for x in chosen]
    return np.reshape(np.array(blocks, np.int64), (count, len(free)))


def _skip(x: Integers, gone: list[Integers]) -> Integers:
    """Return the x-th number that is none of those that are gone."""
    for each in np.sort(np.array(gone), axis=0) if gone else ():
        x = x + (x >= each)
    return x


@dataclass(frozen=True)
class Image1D(IntervalPattern):
    """j // block = i // block, or begin - memory <= j < begin of the block of i."""

    block: int
    memory: int

    def _heads(self, n: int, length: int) -> tuple[Head, ...]:
        numbers, runs = _find_blocks(n, length, self.block)
        begin = numbers[None] * self.block
        return ((Intervals(begin - self.memory, begin + self.block, runs),),)


def block_permutation(block: int, permutations: Any) -> Pattern:
    r"""Return blocks by permutations: query block i sees key block :math:`p_i`.

    BlockBERT, Qiu et al. (2020).

    Parameters
    ----------
    block : int
        How many tokens a block has; the last one may be shorter.
    permutations : (m,) or (heads, m) array of int
        Permutations of the m blocks, one for all heads or for each.

    Returns
    -------
    Pattern
        For up to m * block tokens.

    Raises
    ------
    ParameterError
        If a number is not allowed, or a row is no permutation; by `plan`, for other numbers of blocks.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.patterns.block_permutation(2, [1, 0]).plan(4).mask().astype(int)
    array([[0, 0, 1, 1],
           [0, 0, 1, 1],
           [1, 1, 0, 0],
           [1, 1, 0, 0]])
    """
    array = array_of(permutations)
    rows = array[None] if array.ndim == 1 else array
    fits = rows.ndim == 2 and rows.size > 0 and rows.dtype.kind in "iu"
    if not fits or not np.array_equal(np.sort(rows, axis=1), np.broadcast_to(np.arange(rows.shape[1]), rows.shape)):
        raise ParameterError(
            f"permutations must be one of the numbers 0 to m - 1, (m,), or one a head, (heads, m); "
            f"got {shown(permutations)}"
        )
    return BlockPermutation(positive_integer("block", block), tuple(map(tuple, rows.tolist())))


def bigbird(block: int, random: int, *, rng: RNG = None, heads: int = 1) -> Pattern:
    """Return blocks 0, i - 1, i, i + 1, the last one, and `random` others; the first and the last block see all.

    Zaheer et al. (2020). No key counts twice, and where there are fewer others all of them are seen.

    Parameters
    ----------
    block : int
        How many tokens a block has; the last one may be shorter.
    random : int
        How many other blocks each of the middle blocks sees.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        What chooses them; plans for one length are the same.
    heads : int
        How many heads choose apart.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.patterns.bigbird(16, 2, rng=0, heads=2).plan(256).pairs
    32768
    """
    block, random, heads = (
        positive_integer("block", block),
        whole_number("random", random),
        positive_integer("heads", heads),
    )
    return BigBird(block, random, int(generator(rng).integers(2**63)), heads)


def image_1d(block: int, memory: int) -> Pattern:
    r"""Return j // block = i // block, or :math:`b - memory \le j < b` where b begins the block of i.

    Image Transformer in one dimension, Parmar et al. (2018).

    Parameters
    ----------
    block : int
        How many tokens a block of queries has.
    memory : int
        How many tokens before it are seen.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.patterns.image_1d(2, 1).plan(4).mask().astype(int)
    array([[1, 1, 0, 0],
           [1, 1, 0, 0],
           [0, 1, 1, 1],
           [0, 1, 1, 1]])
    """
    return Image1D(positive_integer("block", block), whole_number("memory", memory))
