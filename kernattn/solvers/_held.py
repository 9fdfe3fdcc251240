"""Rows that moments hold while they are no more than features: their products are then the smaller matrix."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64, frozen

EVEN = 1e4  # times the least squared norm of a row


class Held(NamedTuple):
    """Features and targets of rows, times the roots of their weights."""

    features: Float64  # (n, M)
    targets: Float64  # (n, c), less the shift of the moments
    roots: Float64  # (n,)

    def about(self, by: Float64) -> Held:
        """Return the rows with targets that are so much larger (c,)."""
        return self._replace(targets=self.targets + np.outer(self.roots, by)) if by.any() else self

    def less(self, mean: Float64, level: Float64) -> tuple[Float64, Float64]:
        """Return features less a mean (M,), and targets less a level (c,), times the roots."""
        return self.features - np.outer(self.roots, mean), self.targets - np.outer(self.roots, level)


def are_even(products: Float64) -> bool:
    """Return whether products of rows (n, n) tell as much as those of features.

    Beside rows that are far larger, as of huge weights, what rounding leaves of the others is multiplied by the large.
    """
    squares = np.diagonal(products)
    return float(squares.max()) <= EVEN * float(squares.min())


def hold(features: Float64, targets: Float64, weights: Float64 | None) -> Held | None:
    """Return rows to be held; None where they are more than features."""
    n, m = features.shape
    if n > m:
        return None
    if weights is None:
        return Held(frozen(features.copy()), frozen(targets.copy()), frozen(np.ones(n)))
    roots = np.sqrt(weights)
    with np.errstate(over="ignore", under="ignore"):  # sums refuse what is beyond float64
        return Held(frozen(roots[:, None] * features), frozen(roots[:, None] * targets), frozen(roots))


def join(a: Held | None, b: Held | None) -> Held | None:
    """Return the rows of both; None where one is not held, or they are more than features."""
    if a is None or b is None or len(a.roots) + len(b.roots) > a.features.shape[1]:
        return None
    features, targets, roots = (frozen(np.concatenate(pair)) for pair in zip(a, b, strict=True))
    return Held(features, targets, roots)
