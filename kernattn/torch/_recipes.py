"""Values that may be made within a graph, as constants: outside of it they have no fields yet."""

from operator import index
from typing import Any

from kernattn._arrays.graphs import in_a_graph
from kernattn.attention.patterns import Pattern
from kernattn.features import Cosformer, Elementwise, Monomials, Taylor2
from kernattn.kernels import Kernel

FIXED = Elementwise, Cosformer, Monomials, Taylor2
"""Maps without a draw: a few numbers say all."""

_kept: dict[int, Pattern] = {}


def recipe_of(value: Any) -> Any:
    """Return the class and the fields of a value, and of those within it; of a field, the constant that it is."""
    if isinstance(value, Pattern) and value._long:
        return (_kept_pattern, _keep(value))
    if isinstance(value, (Pattern, Kernel, *FIXED)):
        kind: Any = type(value)
        return (kind, *[recipe_of(getattr(value, name)) for name in kind.__match_args__])
    if isinstance(value, tuple):
        return (tuple, [recipe_of(each) for each in value])
    return index(value) if type(value) is int else value


@in_a_graph
def _keep(pattern: Pattern) -> int:
    _kept[id(pattern)] = pattern
    return id(pattern)


def _kept_pattern(key: int) -> Pattern:
    return _kept[key]


def remade(recipe: Any) -> Any:
    """Return the value of a recipe."""
    if isinstance(recipe, list):
        return [remade(each) for each in recipe]
    if isinstance(recipe, tuple):
        make, *fields = recipe
        return make(*map(remade, fields))
    return recipe
