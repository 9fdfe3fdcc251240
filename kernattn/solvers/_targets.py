"""Answers of fits in the shape that targets came in."""

from typing import Any


class OfTargets:
    """A fit to targets, each of which has a place on the last axis of answers."""

    _vector: bool  # whether targets came as (n,)

    def _shape(self, values: Any) -> Any:
        """Return values (..., c) without the last axis where targets came as (n,)."""
        return values[..., 0] if self._vector else values
