"""Trees of numbers: tuples of trees, with numbers or None, of which there are none, at their ends."""

from collections.abc import Callable
from typing import Any


def leaves(tree: Any) -> list[Any]:
    """Return the numbers of a tree, in order, None among them."""
    return [leaf for each in tree for leaf in leaves(each)] if isinstance(tree, tuple) else [tree]


def add(one: Any, other: Any) -> Any:
    """Return the tree of sums of two trees of one form."""
    if isinstance(one, tuple):
        return tuple(add(a, b) for a, b in zip(one, other, strict=True))
    return None if one is None else one + other


def map_leaves(function: Callable[[Any], Any], tree: Any) -> Any:
    """Return the tree of what a function makes of each number."""
    if isinstance(tree, tuple):
        return tuple(map_leaves(function, each) for each in tree)
    return None if tree is None else function(tree)
