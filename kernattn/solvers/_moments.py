"""Sums over rows of features and their products, which is all that the solvers need of data, and how they add up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from kernattn._arrays.namespaces import Float64, frozen
from kernattn._runtime.checks import check_room, instance_of, positive_integer, whole_number
from kernattn._runtime.deprecated import old_positions
from kernattn.errors import ParameterError, StateMismatchError
from kernattn.features import FeatureMap


@final
@dataclass(frozen=True, eq=False, repr=False)
class Moments:
    r"""Sums over rows, :math:`G = \sum_i w_i \phi(x_i) \phi(x_i)^T` and those beside it, with which solvers work.

    They are values in float64 on the host: sums of disjoint rows add up, in any order, by ``a + b``.

    Attributes
    ----------
    phi : FeatureMap
        The map, of M features.
    n : int
        Number of rows; of those whose weight is not 0, where there are weights.
    weight : float
        Sum of the weights: n where there are none.
    weighted : bool
        Whether a weight was neither 0 nor 1.
    s : (M,) numpy.ndarray
        Sum of the features.
    gram : (M, M) numpy.ndarray
        Sum of their outer products, G.
    cross : (M, c) numpy.ndarray
        Sum of outer products of features and targets, B; c is 0 where there are no targets.
    y_sum : (c,) numpy.ndarray
        Sum of the targets.
    y_gram : (c, c) numpy.ndarray
        Sum of their outer products.
    vector : bool
        Whether targets came as (n,).
    products : {"float64", "float32"}
        In which dtype rows were multiplied.
    """

    phi: FeatureMap
    n: int
    weight: float
    weighted: bool
    s: Float64
    gram: Float64
    cross: Float64
    y_sum: Float64
    y_gram: Float64
    vector: bool
    products: str

    def __repr__(self) -> str:
        """Return the sizes."""
        return f"Moments(n={self.n}, num_features={len(self.s)}, targets={len(self.y_sum)}, phi={self.phi!r})"

    @property
    def fingerprint(self) -> int:
        """Fingerprint of the map."""
        return self.phi.fingerprint

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of the rows of both, which must be of one map and of as many targets."""
        instance_of("the other side of +", other, Moments)
        return _add(self, other, np.add)


@old_positions("targets")
def initial_moments(phi: FeatureMap, *, targets: int | None = None, dim: int | None = None) -> Moments:
    """Return the moments of no rows, every sum 0, to which others are added.

    Parameters
    ----------
    phi : FeatureMap
        The map.
    targets : int, optional
        Number c of columns of targets (n, c); 0 for targets (n,). None where there are none.
    dim : int, optional
        Columns d of the rows, for a map that takes any.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.solvers.initial_moments(ka.features.elu1(), dim=4).gram.shape
    (4, 4)
    """
    instance_of("phi", phi, FeatureMap)
    if phi.dim is None and dim is None:
        raise ParameterError("dim must be given for a map of any dimension; got None")
    m = phi.num_features_of(positive_integer("dim", phi.dim if dim is None else dim))
    if targets is not None:
        targets = whole_number("targets", targets) and positive_integer("targets", targets)
    c = 0 if targets is None else max(targets, 1)
    check_room("the moments", (m + c, m + c))
    shapes = ((m,), (m, m), (m, c), (c,), (c, c))
    s, gram, cross, y_sum, y_gram = (frozen(np.zeros(shape)) for shape in shapes)
    return Moments(phi, 0, 0.0, False, s, gram, cross, y_sum, y_gram, targets == 0, "float64")


def add_to(total: Moments, part: Moments) -> Moments:
    """Return the moments of both in the arrays of `total`, which the caller made and nobody else holds."""

    def write(held: Float64, more: Float64) -> Float64:
        held.setflags(write=True)
        return np.add(held, more, out=held)

    return _add(total, part, write)


def _add(a: Moments, b: Moments, add: Callable[[Float64, Float64], Float64]) -> Moments:
    """Return the moments of both, whose sums `add` makes of two."""
    if a.fingerprint != b.fingerprint or a.s.shape != b.s.shape:
        raise StateMismatchError(
            f"moments must be of one draw of the map: draw it once, or with one seed; got {a!r} and {b!r}"
        )
    if (a.cross.shape, a.vector) != (b.cross.shape, b.vector):
        raise StateMismatchError(f"moments must be of the same targets; got {_targets(a)} and {_targets(b)}")
    names = "s", "gram", "cross", "y_sum", "y_gram"
    sums: dict[str, Any] = {name: frozen(add(getattr(a, name), getattr(b, name))) for name in names}
    products = "float64" if a.products == b.products == "float64" else "float32"
    weight, weighted = a.weight + b.weight, a.weighted or b.weighted
    return replace(a, n=a.n + b.n, weight=weight, weighted=weighted, products=products, **sums)


def _targets(m: Moments) -> str:
    """Return the shape of the targets in words."""
    return "y (n,)" if m.vector else f"y (n, {len(m.y_sum)})" if len(m.y_sum) else "no y"
