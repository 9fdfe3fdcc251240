"""How a token tells where it stands."""

from math import prod
from typing import NamedTuple

from kernattn._arrays.namespaces import Array, namespace, placement
from kernattn.transformer._config import Config
from kernattn.transformer._halves import widen
from kernattn.transformer._parts import Params


class Rotations(NamedTuple):
    """Cosines and sines (..., 1, n, r / 2) by which rotary positions rotate r numbers of queries and keys."""

    cos: Array
    sin: Array


def limit(config: Config) -> int | None:
    """Return the most positions that there are."""
    return config.length if config.grid is None else prod(config.grid)


def take_rows(table: Array, at: Array) -> Array:
    """Return rows of a table (rows, d) at indices (...) of any width: (..., d), widened where they have 16 bits."""
    xp = namespace(table=table)
    at = xp.astype(at, xp.arange(1).dtype, copy=False)
    return xp.reshape(widen(xp.take(table, xp.reshape(at, (-1,)), axis=0)), (*at.shape, table.shape[-1]))


def position_rows(params: Params, config: Config, positions: Array, like: Array) -> Array | None:
    """Return the rows (..., n, dim) that are added to embeddings at positions (..., n), or None."""
    if config.positions == "learnt":
        return take_rows(params["embed.positions"], positions)
    if config.positions == "sinusoidal":
        return _make_waves(config, positions, like)
    if config.grid is None:
        return None
    rows, left = None, positions
    for axis in range(len(config.grid) - 1, -1, -1):
        part = take_rows(params[f"embed.positions.{axis}"], left % config.grid[axis])
        rows, left = part if rows is None else rows + part, left // config.grid[axis]
    return rows


def _angles(config: Config, positions: Array, like: Array, width: int) -> Array:
    """Return p / theta^(2 i / width), (..., n, ceil(width / 2)), in the dtype of `like` but float32 at least."""
    xp = namespace(like=like)
    dtype = like.dtype if like.dtype == xp.float64 else xp.float32
    halves = xp.arange((width + 1) // 2, dtype=dtype, **placement(like))
    rates = xp.exp(halves * (-2.0 / width) * xp.log(xp.full_like(halves, config.theta)))
    return xp.astype(positions, dtype)[..., None] * rates


def _make_waves(config: Config, positions: Array, like: Array) -> Array:
    """Return sines and cosines, interleaved (Vaswani et al. 2017)."""
    xp, angles = namespace(like=like), _angles(config, positions, like, config.dim)
    waves = xp.stack([xp.sin(angles), xp.cos(angles)], axis=-1)
    waves = xp.reshape(waves, (*angles.shape[:-1], 2 * angles.shape[-1]))
    return xp.astype(waves[..., : config.dim], like.dtype, copy=False)


def rotations(config: Config, positions: Array, like: Array) -> Rotations | None:
    """Return the rotations of queries and keys at positions (..., n), or None where positions are not rotary."""
    if config.positions != "rotary":
        return None
    xp, angles = namespace(like=like), _angles(config, positions, like, config.turned)[..., None, :, :]
    return Rotations(*(xp.astype(part, like.dtype, copy=False) for part in (xp.cos(angles), xp.sin(angles))))


def rotate(x: Array, by: Rotations | None) -> Array:
    """Return heads (..., h, n, d) with the pairs (i, i + r / 2) of their first r numbers rotated."""
    if by is None:
        return x
    half = by.cos.shape[-1]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return namespace(x=x).concat([a * by.cos - b * by.sin, b * by.cos + a * by.sin, rest], axis=-1)
