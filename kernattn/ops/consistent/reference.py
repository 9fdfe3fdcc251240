"""Consistent samples in NumPy, some features at a time."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.shapes import strips
from kernattn.ops.minwise.words import STEP, Words, keyed, mixed, signs

ROOM = 2**20  # numbers of a kind at a time


def consistent(
    starts: NDArray[np.int64],
    places: NDArray[np.int32],
    logs: NDArray[np.float32],
    members: Words,
    keys: Words,
    out: NDArray[Any],
) -> None:
    """Write a sign of the sample of every set for every feature, (n, M)."""
    runs, order = np.diff(starts), np.arange(len(places))[:, None]
    for some in strips(keys.shape[1], ROOM // len(places)):
        words = keyed(members, keys[:, some])
        r, rate, offset, level = (numbers[places] for numbers in _drawn(words))
        t = np.floor(logs[:, None] * rate + offset)
        first = level - r * t
        least = np.repeat(np.minimum.reduceat(first, starts[:-1], axis=0), runs, axis=0)
        winner = np.minimum.reduceat(np.where(first == least, order, len(places)), starts[:-1], axis=0)
        level_word = np.take_along_axis(t, winner, axis=0).astype(np.int64).astype(np.uint32)
        word = np.take_along_axis(words[places], winner, axis=0) + level_word * np.uint32(STEP)
        out[:, some] = signs(mixed(word), keys.shape[1] ** -0.5, out.dtype)


def _drawn(words: Words) -> tuple[NDArray[np.float32], ...]:
    r"""Return r, 1 / r, :math:`\beta` and :math:`\log c + r (\beta - 1)` of hashes (u, M)."""
    steps = np.arange(1, 6, dtype=np.uint32) * np.uint32(STEP)
    a, b, c, d, beta = ((mixed(words + step) + 0.5) * 2.0**-32 for step in steps)
    r = -np.log(a * b)
    return tuple(x.astype(np.float32) for x in (r, 1 / r, beta, np.log(-np.log(c * d)) + r * (beta - 1)))
