"""Sums of many parts, by pairs, in an order that depends on their number alone."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Part = TypeVar("Part")
Add = Callable[[Part, Part], Part]


def add_pairs(add: Add[Part], parts: Sequence[Part]) -> Part:
    """Return the sum of all parts, neighbours first."""
    while len(parts) > 1:
        parts = [*_pairs(add, parts), *parts[len(parts) // 2 * 2 :]]
    return parts[0]


def add_prefixes(add: Add[Part], parts: Sequence[Part]) -> list[Part]:
    """Return the sums of the first part, of the first two and so on: 2 n additions, 2 log n deep."""
    if len(parts) == 1:
        return [*parts]
    twos = add_prefixes(add, _pairs(add, parts))
    return [parts[0], *(twos[i // 2] if i % 2 else add(twos[i // 2 - 1], parts[i]) for i in range(1, len(parts)))]


def _pairs(add: Add[Part], parts: Sequence[Part]) -> list[Part]:
    return [add(a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
