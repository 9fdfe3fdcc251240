r"""Least squares in the eigenvectors of G, where every penalty costs O(M): :math:`G = U \mathrm{diag}(s) U^T`.

G is brought to three diagonals, :math:`G = Q T Q^T`, whose eigenvectors S cost O(M^2): all that a fit asks for is
products with Q and S. :math:`U = Q S` is another half of the work, and is made when rows ask for it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernattn._arrays.csr import is_sparse
from kernattn._arrays.namespaces import Array, Float64, constant, like, namespace, without_flags
from kernattn._arrays.shapes import strips
from kernattn._runtime.checks import as_numbers, finite_number, instance_of, shown
from kernattn._runtime.lazy import lazy
from kernattn.errors import EmptyInputError, ParameterError, ShapeError
from kernattn.features import FeatureMap
from kernattn.solvers._by_rows import RowBasis
from kernattn.solvers._check import check_map_takes, check_varies, widen
from kernattn.solvers._eigenbasis import Eigenbasis, eigenbasis
from kernattn.solvers._held import are_even
from kernattn.solvers._moments import Moments

ROUNDING = 4.0  # times the epsilon of the products and the largest eigenvalue: a penalty below that means nothing
BLOCK = 1 << 22  # features that are held at once
LEAST = 1e-290  # a sum of squares that stands for 0: it is divided, and divided by
HIGHEST = 1e3  # times the largest eigenvalue: the largest penalty that is looked at


@dataclass(frozen=True, eq=False)
class Spectrum:
    r"""The quadratic :math:`|y - \Phi w|^2 = y^T y - 2 w^T B + w^T G w` of c targets, as sums over eigenvectors."""

    basis: Eigenbasis | RowBasis
    values: Float64  # s (M,), descending, none below 0
    coordinates: Float64  # U^T B (M, c)
    energy: Float64  # y^T y (c,)
    count: int  # n
    share: float  # one over the sum of weights where means were taken off, else 0
    mean: Float64  # (M,), of features, or 0
    y_mean: Float64  # (c,)
    floor: float
    lowest: float  # the least penalty that is looked at: what rounding makes of eigenvalues of 0 is well below

    @lazy
    def vectors(self) -> Float64:
        """Eigenvectors U (M, M)."""
        return self.basis.vectors(len(self.values))

    @property
    def rows(self) -> int:
        """n, less one where means were taken off."""
        return self.count - (self.share > 0)

    def dimensions(self, penalties: Float64) -> Float64:
        """Return the effective dimensions (L,): the sum of s / (s + lambda)."""
        sums: Float64 = np.sum(self.values / (self.values + penalties[:, None]), axis=1)
        return sums

    def quadratic(self, penalties: Float64) -> Float64:
        r"""Return :math:`y^T (I + \Phi \Phi^T / \lambda)^{-1} y` (L, c), the least of the penalised sums of squares."""
        return self._take_off(1 / (self.values + penalties[:, None]))

    def residual(self, penalties: Float64) -> Float64:
        """Return the sums of squared residuals (L, c)."""
        at = penalties[:, None]
        shrunk = 1 / (self.values + at)
        return self._take_off(shrunk + at * shrunk * shrunk)

    def _take_off(self, parts: Float64) -> Float64:
        """Return y^T y less parts (L, M) of the squared coordinates, which rounding must not make 0 or less."""
        unit = np.ldexp(1.0, np.frexp(self.values[0])[1] // 2)  # squares may be beyond float64
        sums = self.energy - (parts * unit**2) @ (self.coordinates / unit) ** 2
        left: Float64 = np.maximum(sums, np.maximum(np.finfo(float).eps * self.energy, LEAST))
        return left

    def log_determinant(self, penalties: Float64) -> Float64:
        r"""Return :math:`\log|I + \Phi \Phi^T / \lambda|` (L,)."""
        sums: Float64 = np.sum(np.log1p(self.values / penalties[:, None]), axis=1)
        return sums

    def log_evidence(self, penalties: Float64, variances: Float64, n: int) -> Float64:
        r"""Return the log density of n targets :math:`N(0, v (I + \Phi \Phi^T / \lambda))` at variances v, (L, c)."""
        fit = self.quadratic(penalties) / variances
        twice: Float64 = -(n * np.log(2 * np.pi * variances) + self.log_determinant(penalties)[:, None] + fit)
        return twice / 2

    def weights(self, penalties: Float64) -> Float64:
        """Return w (M, c), a penalty for each target."""
        return self.basis.combine(self.coordinates / (self.values[:, None] + penalties))

    @property
    def ceiling(self) -> float:
        """The largest penalty that is looked at."""
        return min(HIGHEST * max(float(self.values[0]), self.lowest), float(np.finfo(float).max))

    def grid(self, count: int = 200) -> Float64:
        """Return penalties from the lowest up to where all is shrunk."""
        return np.geomspace(self.lowest, self.ceiling, count)


@dataclass(frozen=True, eq=False)
class Centred:
    """Moments as fits take them: less means where there is an intercept."""

    moments: Moments
    energy: Float64  # (c,)
    share: float  # one over the sum of weights where means were taken off, else 0
    mean: Float64  # (M,)
    y_mean: Float64  # (c,)
    taken_off: float  # the largest sum of squares that means were taken off, which has rounded, too

    @lazy
    def gram(self) -> Float64:
        """G (M, M)."""
        return self.moments.gram - np.outer(self.mean, self.moments.s)

    @lazy
    def cross(self) -> Float64:
        """B (M, c)."""
        targets = self.moments._targets if self.share else self.moments._raw
        return targets.cross - np.outer(self.mean, targets.total)

    @lazy
    def rows(self) -> tuple[Float64, Float64] | None:
        """Features (n, M) and targets (n, c), times the roots of weights, where moments hold them."""
        held = self.moments._held
        return None if held is None else held.less(self.mean, self.y_mean - self.moments._targets.shift)

    def find_floor(self, largest: float) -> tuple[float, float]:
        """Return the least penalty that means anything, and the least that is looked at, by the largest eigenvalue."""
        scale = ROUNDING * max(largest, self.taken_off)
        floor = float(np.finfo(self.moments.products).eps) * scale
        lowest = max(floor, len(self.mean) * float(np.finfo(float).eps) * scale)
        if not lowest > LEAST:  # it is divided by
            raise ParameterError("features must not be 0 in all rows, nor so small that their squares are")
        return floor, lowest


def centre(m: Moments, centred: bool) -> Centred:
    """Return moments of features and targets less their means, where `centred`."""
    instance_of("moments", m, Moments, "as kernattn.solvers.moments(x, phi, y=y)")
    if m.n < 1 + centred:
        raise EmptyInputError(f"moments must hold {1 + centred} rows at least; got {m.n}")
    share = centred / m.weight
    targets = m._targets if centred else m._raw
    mean, beyond = share * m.s, share * targets.total
    some = np.any(targets.cross != 0, axis=0) | (targets.total != 0)
    if np.any(some & (np.diagonal(targets.gram) < LEAST / np.finfo(float).eps)):
        of = "targets, times the roots of their weights," if m.weighted else "targets"
        raise ParameterError(f"{of} must be 0, or larger: sums of their squares are below float64; scale them")
    energy = np.maximum(np.diagonal(targets.gram) - beyond * targets.total, 0.0)
    taken_off = float(np.max(np.diagonal(m.gram))) if share else 0.0
    return Centred(m, energy, share, mean, beyond + targets.shift, taken_off)


def decompose(m: Moments, centred: bool, varies: bool = True, by_rows: bool = False) -> Spectrum:
    """Return the spectrum of G, of features and targets less their means where `centred`; features must vary then.

    It is made `by_rows` where that is asked for, moments hold them, and they are even: the same but for rounding.
    """
    sums = centre(m, centred)
    rows = sums.rows if by_rows else None
    if rows is not None and are_even(products := rows[0] @ rows[0].T):
        basis: Eigenbasis | RowBasis = RowBasis(eigenbasis(products), rows[0])
        coordinates = basis.coordinates(rows[1])
    else:
        basis = eigenbasis(sums.gram)
        coordinates = basis.coordinates(sums.cross)
    values = np.maximum(basis.values, 0.0)
    if centred and varies:
        check_varies("features", float(values[0]), np.diagonal(m.gram), m.products)
    ends = sums.find_floor(float(values[0]))
    return Spectrum(basis, values, coordinates, sums.energy, m.n, sums.share, sums.mean, sums.y_mean, *ends)


def check_penalties(penalties: object, floor: float, dimensions: tuple[int, ...] = (0, 1)) -> Float64:
    """Return penalties as numbers, none below the floor."""
    values = as_numbers("penalty", penalties)
    if values.ndim not in dimensions or values.size == 0:
        raise ShapeError(f"penalty must have {' or '.join(map(str, dimensions))} axes, none empty; got {values.shape}")
    if not (np.isfinite(values).all() and np.min(values) >= floor):
        raise ParameterError(
            f"penalty must be finite and {floor:.3g} or more, {ROUNDING:g} times the rounding of the largest "
            f"eigenvalue, below which the answer is noise; got {shown(penalties)}"
        )
    return values


def check_lowest(lowest: object) -> float:
    """Return the least penalty that may be taken, 0 or more."""
    if (value := finite_number("lowest", lowest)) < 0:
        raise ParameterError(f"lowest must be 0 or more; got {shown(lowest)}")
    return value


def minimise_on_grid(cost: Callable[[Float64], Float64], low: float, high: float) -> Float64:
    """Return the place (c,) of the least cost (L,) -> (L, c), on a grid that is refined about its least point."""
    grid = np.geomspace(low, high, 200)
    best = np.argmin(cost(grid), axis=0)
    places = np.empty(best.shape)
    for i, at in enumerate(best):
        finer, at = grid, int(at)
        for _ in range(4):
            finer = np.geomspace(float(finer[max(at - 1, 0)]), float(finer[min(at + 1, len(finer) - 1)]), 17)
            at = int(np.argmin(cost(finer)[:, i]))
        places[i] = finer[at]
    return places


def cast_as(values: Array, x: Array) -> Array:
    """Return values beside x, in its dtype: infinite where they are beyond it."""
    xp = namespace(values=values)
    with np.errstate(over="ignore", under="ignore"):
        if is_sparse(x) or namespace(x=x) is xp:
            return xp.astype(values, x.dtype, copy=False)
        return like(values, x)


@without_flags
def project(phi: FeatureMap, x: Array, matrix: Float64, shift: Float64, backend: str | None) -> Array:
    """Return phi(x) matrix - shift, (..., n, k), a block of rows at a time, in the dtype and the place of `widen`."""
    check_map_takes(phi, x)
    *lead, n, dim = x.shape
    if phi.num_features_of(dim) != len(matrix):
        raise ShapeError(f"x must have as many columns as the rows that were fitted; got shape {tuple(x.shape)}")
    parts = []
    for here in strips(n, BLOCK // (len(matrix) * max(1, int(np.prod(lead))))):
        products = phi._project(widen(x[..., here, :]), matrix, backend)
        xp = namespace(products=products)
        parts.append(products - constant(xp, shift, products.dtype, products))
    return parts[0] if len(parts) == 1 else xp.concat(parts, axis=-2)
