"""Landmarks that a partial Cholesky factorisation picks column by column: K = F F^T + residual."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import check_room
from kernattn._runtime.lazy_scipy import linalg
from kernattn.features._nystrom.gram import Gram

BLOCK = 64  # proposals a round
HELD = 1024  # rows whose kernel matrix is computed at once
EXHAUSTED = 1e-13  # of the trace: what is left is rounding


class Pivots(NamedTuple):
    """Chosen rows in order, and the relative trace of the residual after each of them.

    They are at most the m that are asked for, and end where the target or the numerical rank is reached.
    """

    indices: NDArray[np.int64]
    residuals: Float64


def rpcholesky(gram: Gram, m: int, rng: np.random.Generator, target: float) -> Pivots:
    r"""Pick pivots with probability proportional to the residual's diagonal: randomly pivoted Cholesky.

    Chen, Epperly, Tropp and Webber (2025). Pivots are proposed in blocks from the residual at the block's beginning,
    and each is accepted with the probability that makes the law that of one pivot at a time (Epperly, Tropp and Webber
    2024).
    """
    residual = gram.diagonal()
    trace = float(np.sum(residual))
    factor = _room_for_factor(m, len(gram))
    chosen: list[int] = []
    left = [1.0]
    if gram.kernel is not None and len(gram) <= HELD:  # a kernel matrix at once takes less time than many parts of it
        gram = Gram(None, gram.entries(slice(None), slice(None)))
    while len(chosen) < m and left[-1] > max(target, EXHAUSTED):
        k = len(chosen)
        proposed = rng.choice(len(gram), min(BLOCK, m - k), p=residual / np.sum(residual))
        inner = gram.entries(proposed, proposed) - factor[:k, proposed].T @ factor[:k, proposed]
        accepted, lower = _accept(inner, rng.random(len(proposed)))
        if not len(accepted):
            break
        pivots = proposed[accepted]
        columns = gram.entries(pivots, slice(None)) - factor[:k, pivots].T @ factor[:k]  # as rows, (pivots, n)
        rows = factor[k : k + len(pivots)]
        rows[:] = linalg.solve_triangular(lower, columns, lower=True, overwrite_b=True, check_finite=False)
        squares = rows**2
        residual = np.maximum(residual - np.sum(squares, axis=0), 0.0)
        residual[pivots] = 0.0
        left.extend(left[-1] - np.cumsum(np.sum(squares, axis=1)) / trace)
        left[-1] = float(np.sum(residual)) / trace
        chosen.extend(pivots.tolist())
    return _until(chosen, left[1:], target)


def greedy(gram: Gram, m: int, rng: np.random.Generator, target: float) -> Pivots:
    r"""Pick the largest diagonal entry of the residual each time: pivoted Cholesky (Fine and Scheinberg 2001)."""
    residual = gram.diagonal()
    trace = float(np.sum(residual))
    factor = _room_for_factor(m, len(gram))
    chosen: list[int] = []
    left = [1.0]
    while len(chosen) < m and left[-1] > max(target, EXHAUSTED):
        k = len(chosen)
        i = int(np.argmax(residual))
        column = gram.entries(slice(None), np.array([i]))[:, 0] - factor[:k, i] @ factor[:k]
        if column[i] <= EXHAUSTED * trace / len(gram):
            break
        factor[k] = column / column[i] ** 0.5
        residual = np.maximum(residual - factor[k] ** 2, 0.0)
        residual[i] = 0.0
        chosen.append(i)
        left.append(float(np.sum(residual)) / trace)
    return _until(chosen, left[1:], target)


def _room_for_factor(m: int, n: int) -> Float64:
    """Return room for F^T."""
    check_room("the Cholesky factor of num_landmarks and rows", (m, n))
    return np.empty((m, n))


def _accept(inner: Float64, uniform: Float64) -> tuple[NDArray[np.int64], Float64]:
    """Return which proposals are accepted, and the Cholesky factor of their residual matrix."""
    left, least = inner.diagonal().copy(), (np.maximum(uniform, EXHAUSTED) * inner.diagonal()).tolist()
    accepted: list[int] = []
    columns = np.empty_like(inner)  # as rows
    for i, below in enumerate(least):
        if left[i] > below:
            k = len(accepted)
            column = columns[k]
            column[:] = inner[i]
            column -= columns[:k, i] @ columns[:k]
            column /= column[i] ** 0.5
            left -= column**2
            accepted.append(i)
    rows = np.array(accepted, dtype=np.int64)
    return rows, np.tril(columns[: len(rows), rows].T)


def _until(chosen: list[int], left: list[float], target: float) -> Pivots:
    """Return the shortest run of pivots that reaches the target, or all of them."""
    residuals = np.maximum(np.array(left), 0.0)
    enough = np.flatnonzero(residuals <= target)
    count = int(enough[0]) + 1 if len(enough) else len(chosen)
    return Pivots(np.array(chosen[:count], dtype=np.int64), residuals[:count])
