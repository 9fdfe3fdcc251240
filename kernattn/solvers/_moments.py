"""Sums over rows of features and their products, which is all that the solvers need of data, and how they add up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np

from kernattn._arrays.namespaces import Float64, frozen
from kernattn._runtime.checks import check_room, instance_of, positive_integer, whole_number
from kernattn._runtime.deprecated import old_positions
from kernattn.errors import ParameterError, StateMismatchError
from kernattn.features import FeatureMap
from kernattn.solvers._held import Held, join


class Targets(NamedTuple):
    """Sums beside targets less a shift: squares of targets far from 0 would round where their spread lies."""

    cross: Float64  # (M, c)
    total: Float64  # (c,)
    gram: Float64  # (c, c)
    shift: Float64  # (c,)

    def about(self, shift: Float64, s: Float64, weight: float) -> Targets:
        """Return the sums of targets less another shift, by the sum of features and that of weights."""
        by = self.shift - shift
        if not by.any():
            return self
        across = np.outer(self.total, by)
        gram = self.gram + across + across.T + weight * np.outer(by, by)
        return Targets(self.cross + np.outer(s, by), self.total + weight * by, gram, shift)


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
    _targets: Targets
    vector: bool
    products: str
    _held: Held | None = None

    @property
    def _raw(self) -> Targets:
        with np.errstate(over="ignore", under="ignore"):
            return self._targets.about(np.zeros_like(self._targets.shift), self.s, self.weight)

    @property
    def cross(self) -> Float64:
        """Sum of outer products of features and targets, B (M, c); c is 0 where there are no targets."""
        return self._raw.cross

    @property
    def y_sum(self) -> Float64:
        """Sum of the targets (c,)."""
        return self._raw.total

    @property
    def y_gram(self) -> Float64:
        """Sum of the targets' outer products (c, c)."""
        return self._raw.gram

    def __repr__(self) -> str:
        """Return the sizes."""
        return f"Moments(n={self.n}, num_features={len(self.s)}, targets={len(self._targets.total)}, phi={self.phi!r})"

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
    if phi.dim not in (None, dim) and dim is not None:
        raise ParameterError(f"dim must be left out, or be {phi.dim} as the map's; got {dim}")
    if targets is not None:
        targets = whole_number("targets", targets) and positive_integer("targets", targets)
    c = 0 if targets is None else max(targets, 1)
    check_room("the moments", (m + c, m + c))
    s, gram, *beside = (frozen(np.zeros(shape)) for shape in ((m,), (m, m), (m, c), (c,), (c, c), (c,)))
    return Moments(phi, 0, 0.0, False, s, gram, Targets(*beside), targets == 0, "float64")


def add_to(total: Moments, part: Moments) -> Moments:
    """Return the moments of both in the arrays of `total`, which the caller made and nobody else holds."""

    def write(held: Float64, more: Float64) -> Float64:
        held.setflags(write=True)
        return np.add(held, more, out=held)

    return _add(total, part, write)


def _add(a: Moments, b: Moments, add: Callable[[Float64, Float64], Float64]) -> Moments:
    """Return the moments of both, whose sums `add` makes of two."""
    check_one_draw(a, b)
    if (a._targets.cross.shape, a.vector) != (b._targets.cross.shape, b.vector):
        raise StateMismatchError(
            f"moments must be of the same targets; got {_spell_targets(a)} and {_spell_targets(b)}"
        )
    shift, weight = _common_shift(a, b), a.weight + b.weight
    mine, more = (m._targets.about(shift, m.s, m.weight) for m in (a, b))
    pairs = (*zip(mine[:3], more[:3], strict=True), (a.s, b.s), (a.gram, b.gram))
    cross, total, y_gram, s, gram = (frozen(add(held, other)) for held, other in pairs)
    targets = Targets(cross, total, y_gram, shift)
    products = "float64" if a.products == b.products == "float64" else "float32"
    weighted = a.weighted or b.weighted
    rows = join(*(None if m._held is None else m._held.about(m._targets.shift - shift) for m in (a, b)))
    return Moments(a.phi, a.n + b.n, weight, weighted, s, gram, targets, a.vector, products, rows)


def reweigh(m: Moments, weight: float) -> Moments:
    """Return the sums at weights in proportion to those given, whose sum is `weight`."""
    if not m.weight > weight * float(np.finfo(float).tiny):  # it is divided by
        raise ParameterError(f"weights must be larger, as float64 holds no ratio to them; their sum is {m.weight:g}")
    by = weight / m.weight
    cross, total, gram, shift = m._targets
    targets = Targets(by * cross, by * total, by * gram, shift)
    return replace(m, weight=weight, s=by * m.s, gram=by * m.gram, _targets=targets, _held=None)


def count_weights(m: Moments) -> Moments:
    """Return moments in which a weight of k stands for k rows."""
    return replace(m, n=max(m.n, round(m.weight)))


def check_one_draw(a: Moments, b: Moments) -> None:
    """Raise unless both moments are of one draw of a map."""
    if a.fingerprint != b.fingerprint or a.s.shape != b.s.shape:
        raise StateMismatchError(
            f"moments must be of one draw of the map: draw it once, or with one seed; got {a!r} and {b!r}"
        )


def _common_shift(a: Moments, b: Moments) -> Float64:
    """Return for each target the shift, of the two, that is nearer to the mean of all rows."""
    if np.array_equal(a._targets.shift, b._targets.shift):
        return a._targets.shift
    low, high = (choose(a._targets.shift, b._targets.shift) for choose in (np.minimum, np.maximum))
    beyond = sum(m._targets.total + m.weight * (m._targets.shift - low) for m in (a, b))
    return frozen(np.where(2 * beyond > (a.weight + b.weight) * (high - low), high, low))


def _spell_targets(m: Moments) -> str:
    """Return the shape of the targets in words."""
    c = len(m._targets.total)
    return "y (n,)" if m.vector else f"y (n, {c})" if c else "no y"
