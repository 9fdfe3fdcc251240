"""Patterns of tokens on a grid, in raster order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np

from kernattn._runtime.checks import one_of, shown
from kernattn._runtime.deprecated import old_positions
from kernattn.attention.patterns._base import Pattern
from kernattn.attention.patterns._interval_pattern import IntervalPattern
from kernattn.attention.patterns._intervals import Head, Intervals, rows_at, whole_number, whole_rows
from kernattn.errors import ParameterError


@dataclass(frozen=True)
class _Grid(IntervalPattern):
    shape: tuple[int, ...]

    def _check(self, length: int) -> None:
        if length != prod(self.shape):
            raise ParameterError(f"a pattern of shape {self.shape} is for l = {prod(self.shape)}; got l = {length}")


@dataclass(frozen=True)
class Axial(_Grid):
    """All coordinates but one are equal."""

    axis: int

    def _heads(self, n: int, length: int) -> tuple[Head, ...]:
        self._check(length)
        size = self.shape[self.axis]
        order = np.moveaxis(np.arange(length).reshape(self.shape), self.axis, -1).reshape(-1)
        there = order >= length - n
        sizes = np.sum(there.reshape(-1, size), axis=1)
        low = np.flatnonzero(sizes)[None] * size
        runs = np.append(0, np.cumsum(sizes[sizes > 0]))
        if self.axis == len(self.shape) - 1:
            return ((Intervals(low, low + size, runs),),)
        return ((Intervals(low, low + size, runs, order[there] - (length - n), order),),)


@dataclass(frozen=True)
class Neighborhood(_Grid):
    """A window per axis, shifted inwards at the edges."""

    size: tuple[int, ...]

    def _heads(self, n: int, length: int) -> tuple[Head, ...]:
        self._check(length)
        at = np.unravel_index(rows_at(n, length), self.shape)
        begins = [
            np.clip(x - size // 2, 0, whole - size) for x, size, whole in zip(at, self.size, self.shape, strict=True)
        ]
        low = []
        for steps in product(*(range(size) for size in self.size[:-1])):
            line = np.zeros(n, np.int64)
            for begin, step, whole in zip(begins, steps, self.shape, strict=False):
                line = line * whole + begin + step
            low.append(line * self.shape[-1] + begins[-1])
        lows = np.stack(low)
        return ((Intervals(lows, lows + self.size[-1], whole_rows(n)),),)


@dataclass(frozen=True)
class Image2D(_Grid):
    """The tile of a query, and its flange."""

    block: tuple[int, int]
    flange: tuple[int, int, int]  # left, right, top
    tiles: bool  # whether only earlier tiles are seen, and what stands before in the same one

    def _heads(self, n: int, length: int) -> tuple[Head, ...]:
        self._check(length)
        (height, width), (tall, wide), (left, right, top) = self.shape, self.block, self.flange
        y, x = np.divmod(np.arange(length), width)
        order = np.argsort(y // tall * (-(-width // wide)) + x // wide, kind="stable")  # tile after tile
        order = order[order >= length - n]
        y, x = y[order], x[order]
        begin, first = y // tall * tall, x // wide * wide
        low, high = [], []
        for row in range(-min(top, height), min(tall, height)):
            line = begin + row
            start, stop = np.maximum(first - left, 0), np.minimum(first + wide + right, width)
            if self.tiles and row >= 0:
                end = np.minimum(first + wide, width)
                stop = np.where(line < y, end, np.where(line == y, x + 1, first))
            stop = np.where((line >= 0) & (line < height), stop, start)
            low.append(line * width + start)
            high.append(line * width + np.maximum(stop, start))
        lows, highs, runs = np.stack(low), np.stack(high), whole_rows(n)
        tile = begin * width + first
        cuts = np.flatnonzero(np.append(True, tile[1:] != tile[:-1]))
        if not self.tiles:
            lows, highs, runs = lows[:, cuts], highs[:, cuts], np.append(cuts, n)
        return ((Intervals(lows, highs, runs, order - (length - n), None, cuts if tall * wide >= 64 else None),),)


def _check_sizes(name: str, value: Any, axes: int | None = None, least: int = 1) -> tuple[int, ...]:
    """Return `value` as a tuple of integers, of so many."""
    several = isinstance(value, tuple | list) or (isinstance(value, np.ndarray) and value.ndim > 0)
    given = tuple(value) if several else None
    if given is None or not given or (axes is not None and len(given) != axes):
        raise ParameterError(f"{name} must be {axes or 'one or more'} integers; got {shown(value)}")
    return tuple(whole_number(name, each, least) for each in given)


@old_positions("order")
def image_2d(
    shape: Sequence[int], block: Sequence[int], flange: int | Sequence[int], *, order: str = "raster"
) -> Pattern:
    """Return keys in the tile of i, or in its flange: columns to its left and right, and rows above.

    Image Transformer in two dimensions, Parmar et al. (2018). Tokens stand in raster order; the flange has the corners
    above the tile.

    Parameters
    ----------
    shape : (height, width)
        Of the image: l = height * width.
    block : (height, width)
        Of a tile; those at the edges may be smaller.
    flange : int or (left, right, top)
        How far it reaches, to all three sides or to each.
    order : {"raster", "tiles"}
        "tiles" is causal where one tile is made after another: of the keys those in earlier tiles, and in the same
        one what stands at or before i in raster order. With "raster", `causal=True` is plain raster order.

    Returns
    -------
    Pattern
        For height * width tokens.

    Raises
    ------
    ParameterError
        If a number is not allowed; by `plan`, for another number of tokens.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.patterns.image_2d((4, 4), (2, 2), 1).plan(16).mask()[-1].reshape(4, 4).astype(int)
    array([[0, 0, 0, 0],
           [0, 1, 1, 1],
           [0, 1, 1, 1],
           [0, 1, 1, 1]])
    """
    tall, wide = _check_sizes("block", block, 2)
    sides: Any = (flange,) * 3 if isinstance(flange, int | np.integer) else flange
    left, right, top = _check_sizes("flange", sides, 3, 0)
    tiles = one_of("order", order, ("raster", "tiles")) == "tiles"
    return Image2D(_check_sizes("shape", shape, 2), (tall, wide), (left, right, top), tiles)


def axial(shape: Sequence[int], axis: int) -> Pattern:
    """Return the tokens all of whose coordinates but that of `axis` are equal.

    Ho et al. (2019). Tokens stand in raster order.

    Parameters
    ----------
    shape : sequence of int
        Of the grid: l is its product.
    axis : int
        Along which tokens see each other.

    Returns
    -------
    Pattern
        For as many tokens as the grid has.

    Raises
    ------
    ParameterError
        If a number is not allowed; by `plan`, for another number of tokens.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.patterns.axial((2, 2), 0).plan(4).mask().astype(int)
    array([[1, 0, 1, 0],
           [0, 1, 0, 1],
           [1, 0, 1, 0],
           [0, 1, 0, 1]])
    """
    sizes = _check_sizes("shape", shape)
    given: object = axis
    if isinstance(given, bool) or not isinstance(given, int | np.integer) or not -len(sizes) <= axis < len(sizes):
        raise ParameterError(f"axis must be one of the {len(sizes)} axes of shape; got {shown(axis)}")
    return Axial(sizes, int(axis) % len(sizes))


def neighborhood(shape: Sequence[int], size: int | Sequence[int]) -> Pattern:
    """Return a window of `size` on every axis around each token of a grid, shifted inwards at the edges.

    Hassani et al. (2023): every row sees prod(size) keys. Of an even size one more stands before. Tokens stand in
    raster order.

    Parameters
    ----------
    shape : sequence of int
        Of the grid: l is its product.
    size : int or sequence of int
        Of the window, on all axes or on each.

    Returns
    -------
    Pattern
        For as many tokens as the grid has.

    Raises
    ------
    ParameterError
        If a number is not allowed, or the window is larger than the grid; by `plan`, for another number of
        tokens.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.patterns.neighborhood((5,), 3).plan(5).mask().astype(int)
    array([[1, 1, 1, 0, 0],
           [1, 1, 1, 0, 0],
           [0, 1, 1, 1, 0],
           [0, 0, 1, 1, 1],
           [0, 0, 1, 1, 1]])
    """
    sizes = _check_sizes("shape", shape)
    given: Any = (size,) * len(sizes) if isinstance(size, int | np.integer) else size
    window = _check_sizes("size", given, len(sizes))
    if any(one > whole for one, whole in zip(window, sizes, strict=True)):
        raise ParameterError(f"size must be at most shape, {sizes}; got {shown(size)}")
    return Neighborhood(sizes, window)
