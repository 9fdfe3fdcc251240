"""Rows of exact attention of NumPy arrays whose scores or sums may leave the range of floats, one by one.

A row is judged by the keys that it sees, so that none is computed in another way because of what comes after it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kernattn._array import Array

__all__ = ["answer_rows", "far_rows"]

HALF = 500  # octaves: rows of q and k end below 2^500, so that a sum of their products is finite


def far_rows(
    q: Array, k: Array, v: Array, scale: float, before: int | None, mask: Array | None
) -> NDArray[np.bool_] | None:
    """Return which rows (..., n) may overflow though all that they see is finite; None where no row may.

    Row i sees the keys up to before + i, or all of them.
    """
    tiny, largest = (float(x) for x in (np.finfo(q.dtype).tiny, np.finfo(q.dtype).max))
    top = largest / 8
    tops = [float(np.max(np.abs(x), initial=0.0)) for x in (q, k, v)]
    coarse = scale != 0 and not tiny <= abs(scale) <= largest
    with np.errstate(divide="ignore", invalid="ignore"):
        octaves = [float(np.log2(x)) for x in (abs(scale), *tops[:2], q.shape[-1])]
    low = octaves[0] + octaves[1], sum(octaves)  # of q scale, and of a score
    if not coarse and np.max(low) < np.log2(top) and tops[2] < top / max(1, k.shape[-2]):
        return None
    sizes = [np.max(np.abs(x), axis=-1, initial=0.0).astype(np.float64) for x in (q, k, v)]
    if mask is not None:
        sizes[1:] = [np.where(mask, x, 0.0) for x in sizes[1:]]
    seen = [_upto(x, q.shape[-2], before) for x in sizes[1:]]
    with np.errstate(divide="ignore", invalid="ignore"):
        rows, keys = np.log2(sizes[0]) + octaves[0], np.log2(seen[0]) + octaves[3]
        far = (np.maximum(rows, rows + keys) >= np.log2(top)) | (seen[1] >= top / max(1, k.shape[-2])) | coarse
    found: NDArray[np.bool_] = far & np.isfinite(sizes[0]) & np.isfinite(seen[0]) & np.isfinite(seen[1])
    return found


def _upto(sizes: Array, n: int, before: int | None) -> Array:
    """Return for each of n rows the largest size (..., l) of what it sees; NaN where one of them is."""
    largest = np.concatenate([np.zeros((*sizes.shape[:-1], 1)), np.maximum.accumulate(sizes, axis=-1)], axis=-1)
    count = sizes.shape[-1] if before is None else np.clip(np.arange(before, before + n) + 1, 0, sizes.shape[-1])
    return largest[..., np.broadcast_to(count, n)]


def answer_rows(
    far: NDArray[np.bool_], q: Array, k: Array, v: Array, scale: float, before: int | None, mask: Array | None,
    out: Array, lse: Array,
) -> None:  # fmt: skip
    """Write the answers of far rows to out and lse: among the values that they see, and among the floats."""
    lead, length = lse.shape[:-1], k.shape[-2]
    q, k, v = (np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (q, k, v))
    there = np.broadcast_to(True if mask is None else mask, (*lead, length))
    limit = float(np.finfo(lse.dtype).max)
    for *head, i in np.argwhere(np.broadcast_to(far, lse.shape)):
        at = tuple(head)
        keys = there[at].copy()
        if before is not None:
            keys[max(0, before + i + 1) :] = False
        if keys.any():
            out[(*at, i)], log = _row(q[(*at, i)], k[at][keys], v[at][keys].astype(np.float64), scale)
            lse[(*at, i)] = np.clip(log, -limit, limit)


def _scaled(x: Array) -> tuple[Array, Array]:
    """Return rows x 2^-e below 2^HALF in float64, and e."""
    x = x.astype(np.float64)
    e = np.maximum(np.frexp(np.max(np.abs(x), axis=-1, initial=0.0))[1], -HALF) - HALF
    return np.ldexp(x, -e[..., None]), e


def _row(q: Array, k: Array, v: Array, scale: float) -> tuple[Array, float]:
    """Return the answer of one row, and its log normaliser, which may be infinite."""
    mantissa, octave = np.frexp(scale)
    (x, e), (y, exponents) = _scaled(q), _scaled(k)
    scores, octaves, unit = mantissa * (y @ x), exponents + e + octave, 0
    with np.errstate(over="ignore", under="ignore"):
        while np.isinf(peak := np.max(np.ldexp(scores, octaves - unit))):  # the unit in which the largest is finite
            unit += 1000
        differences = np.ldexp(scores, octaves - unit) - peak
        weights = np.exp(np.ldexp(differences, unit))
        total = np.sum(weights)
        out = np.sum((weights / total)[:, None] * v, axis=0)
        log = float(np.ldexp(peak, unit) + np.log(total))
    return np.clip(out, np.min(v, axis=0), np.max(v, axis=0)), log
