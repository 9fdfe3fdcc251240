"""The reduced-rank map: eigenfunctions of the Laplacian on a box, weighted by a kernel's spectral density."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import reduce
from math import pi
from operator import mul
from types import ModuleType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import (
    Array,
    Float64,
    accumulation_dtype,
    anywhere,
    constant,
    frozen,
    indices,
    namespace,
    placement,
    to_numpy64,
    without_flags,
    zeros,
)
from kernattn._arrays.trees import map_leaves
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.checks import host_array, instance_of, one_of, positive_integer, shown
from kernattn._runtime.lazy import lazy
from kernattn._runtime.lazy_scipy import special
from kernattn.errors import ParameterError
from kernattn.features._base.deterministic import DeterministicMap
from kernattn.features._hilbert.density import check_density, density, traced_density
from kernattn.features._hilbert.indices import largest
from kernattn.features._hilbert.slopes import pull_density
from kernattn.features._moments.bounds import Terms
from kernattn.features._moments.pairs import bias_of
from kernattn.kernels import Kernel, Periodic, Stationary

ENDS = ("dirichlet", "neumann", "periodic")
"""What eigenfunctions do at the ends of the box: they vanish, are flat, or go on at the other end."""

MOST = 2**14  # features for which an error is looked for


@final
@dataclass(frozen=True, eq=False, repr=False)
class Hilbert(DeterministicMap):
    r"""Weighted eigenfunctions: :math:`\phi_j(x) = S(\omega_j)^{1/2} \prod_i e_{j_i}(x_i)`; see `hilbert`.

    Rows outside of the box are refused: eigenfunctions go on there as mirror images, and the kernel with them. Rows
    that are traced or transformed cannot be looked at. A periodic kernel has no such bounds.

    Attributes
    ----------
    kernel : Kernel
        The kernel.
    ends : {"dirichlet", "neumann", "periodic"}
        What the eigenfunctions do at the ends.
    lower, upper : (d,) numpy.ndarray
        The ends of the box.
    indices : (M, d) numpy.ndarray
        Which eigenfunction it is along each axis: from 1 with Dirichlet ends, else from 0.
    """

    kernel: Kernel
    ends: str
    lower: Float64  # (d,)
    upper: Float64  # (d,)
    indices: NDArray[np.int64]  # (M, d)

    def __post_init__(self) -> None:
        instance_of("kernel", self.kernel, Kernel)
        one_of("ends", self.ends, ENDS)
        host_array("lower", self.lower, ("d",))
        host_array("upper", self.upper, (len(self.lower),))
        host_array("indices", self.indices, ("M", len(self.lower)), ("int64",))
        if not np.all(self.lower < self.upper):
            raise ParameterError(f"lower must be below upper; got {shown(self.lower)} and {shown(self.upper)}")
        if np.min(self.indices) < (first := first_index(self.ends)):
            raise ParameterError(f"indices must be {first} or more with {self.ends} ends; got {np.min(self.indices)}")
        if not np.isfinite(self.scales()).all():
            raise ParameterError(
                f"ends must be 'dirichlet' for {shown(self.kernel)}, whose density is infinite at 0; got {self.ends!r}"
            )

    @property
    def dim(self) -> int:
        return len(self.lower)

    def num_features_of(self, dim: int) -> int:
        positive_integer("dim", dim)
        return len(self.indices)

    @property
    def frequencies(self) -> Float64:
        r"""Square roots of the Laplacian's eigenvalues along each axis, :math:`\omega` (M, d)."""
        return frequencies(self.ends, self.indices, self.upper - self.lower)

    @without_flags
    def basis(self, x: Array) -> Array:
        r"""Return the eigenfunctions at rows, :math:`\prod_i e_{j_i}(x_i)`, (..., n, d) -> (..., n, M).

        They are orthonormal on the box and know no kernel: a probabilistic program computes them once.
        """
        self._check(x)
        self._check_inside(x)
        xp = namespace(x=x)
        values = self._basis(xp, xp.astype(x, accumulation_dtype(xp, x), copy=False))
        return xp.astype(values, x.dtype, copy=False)

    @without_flags
    def scales(self, kernel: Kernel | None = None, lengthscale: Array | None = None) -> Array:
        r"""Return :math:`S(\omega_j)^{1/2}` (M,), by which eigenfunctions are multiplied: ``basis(x) * scales()``.

        Parameters
        ----------
        kernel : Kernel, optional
            Another kernel on the same eigenfunctions; None is the map's.
        lengthscale : () or (d,) array, optional
            In place of the kernel's, an array of any library: a framework differentiates and traces the result.
        """
        kernel = self.kernel if kernel is None else kernel
        check_ends(kernel, self.ends)
        if lengthscale is None:
            return scales(kernel, self.ends, self.indices, self.upper - self.lower)
        if not isinstance(kernel, Stationary):
            raise ParameterError(f"lengthscale is for a kernel that has one, not for {shown(kernel)}")
        xp = namespace(lengthscale=lengthscale)
        if tuple(lengthscale.shape) not in ((), (self.dim,)):
            raise ParameterError(f"lengthscale must be () or ({self.dim},); got shape {tuple(lengthscale.shape)}")
        omega = constant(xp, self.frequencies, lengthscale.dtype, lengthscale)
        return xp.sqrt(traced_density(kernel, xp, omega, lengthscale))

    def _check_inside(self, x: Array) -> None:
        """Raise where rows lie outside of the box, and name the first."""
        if self.ends == "periodic":
            return
        xp = namespace(x=x)
        low, high = (constant(xp, end, x.dtype, x) for end in (self.lower, self.upper))
        outside = (x < low) | (x > high)
        if not anywhere(outside):
            return
        first = tuple(int(i) for i in np.argwhere(to_numpy64(xp.astype(outside, x.dtype)))[0])
        *lead, axis = first
        raise ParameterError(
            f"x must lie in the box, {float(self.lower[axis]):g} to {float(self.upper[axis]):g} along axis {axis}; "
            f"row {', '.join(map(str, lead))} holds {float(x[first]):g}: make the map with a domain that holds all rows"
        )

    def scaled_query(self, x: Array) -> ScaledFeatures:
        self._check_inside(x)
        xp = namespace(x=x)
        x = xp.astype(x, accumulation_dtype(xp, x), copy=False)
        return ScaledFeatures(self._weigh(xp, x), zeros(xp, (*x.shape[:-1], 1), x.dtype, x))

    @without_flags
    def _compute(self, x: Array, key: bool) -> Array:
        self._check_inside(x)
        xp = namespace(x=x)  # log scales are 0: nothing is multiplied
        values = self._weigh(xp, xp.astype(x, accumulation_dtype(xp, x), copy=False))
        return xp.astype(values, x.dtype, copy=False)

    def _weigh(self, xp: ModuleType, x: Array) -> Array:
        if self.dim == 1 and self._along[0][1] is None:  # one product fewer
            return self._table(xp, x, 0, False, self._own_scales)
        return self._basis(xp, x) * self._scales_beside(xp, x)

    def _scales_beside(self, xp: ModuleType, x: Array) -> Array:
        return constant(xp, self._own_scales, x.dtype, x)

    @lazy
    def _own_scales(self) -> Float64:
        values: Float64 = self.scales()
        return frozen(values)

    def _basis(self, xp: ModuleType, x: Array) -> Array:
        return reduce(mul, self._axes(xp, x, False))

    def _axes(self, xp: ModuleType, x: Array, slope: bool) -> list[Array]:
        """Return e_j(x_i) of each axis (..., n, M), or their derivatives."""
        parts = []
        for i, (_, back) in enumerate(self._along):
            table = self._table(xp, x, i, slope)
            parts.append(table if back is None else xp.take(table, indices(xp, back, x), axis=-1))
        return parts

    def _table(self, xp: ModuleType, x: Array, i: int, slope: bool, weights: Float64 | float = 1.0) -> Array:
        """Return each function of an axis at x_i once, (..., n, m), times weights, or its derivatives."""
        length = float(self.upper[i] - self.lower[i])
        z = x[..., i, None] - float(self.lower[i])
        return _functions(xp, self.ends, self._along[i][0], length, z, slope, weights)

    @lazy
    def _along(self) -> list[tuple[NDArray[np.int64], NDArray[np.int64] | None]]:
        """Return the functions of each axis, and which of them each feature has: None where it is that of its place."""
        blocks: list[tuple[NDArray[np.int64], NDArray[np.int64] | None]] = []
        for column in self.indices.T:
            which, back = np.unique(column, return_inverse=True)
            same = np.array_equal(back, np.arange(len(which)))
            blocks.append((which, None if same else back.reshape(-1)))
        return blocks

    def _pullback(self, x: Array) -> Callable[[Array], tuple[Array, Any]]:
        xp = namespace(x=x)
        values, slopes = self._axes(xp, x, False), self._axes(xp, x, True)
        scale = self._scales_beside(xp, x)

        def pull_back(g: Array) -> tuple[Array, Any]:
            of_scales = to_numpy64(xp.sum(reduce(mul, values, g), axis=0))
            g = g * scale
            parts = []
            for i, one in enumerate(slopes):
                others = [part for j, part in enumerate(values) if j != i]
                parts.append(xp.sum(reduce(mul, others, g * one), axis=-1))
            return xp.stack(parts, axis=-1), self._of_lengthscales(of_scales, x)

        return pull_back

    def _of_lengthscales(self, of_scales: Float64, x: Array) -> Any:
        """Return the cotangents of lengthscales, beside x, from those of the roots of densities (M,)."""
        if isinstance(self.kernel, Periodic):
            return None
        known = np.where(self._own_scales > 0, self._own_scales, np.inf)
        cotangents = pull_density(self.kernel, self.frequencies, of_scales / (2 * known))
        return map_leaves(lambda each: constant(namespace(x=x), each, x.dtype, x), cotangents)

    def _bias(self, x: Float64, y: Float64) -> Float64:
        return bias_of(self.mean(x, y), self.kernel.pairs(x, y))

    def _terms(self, x: Float64, y: Float64) -> Terms:
        """Return the errors of pairs (P, d) with the n largest eigenfunctions of this box, n up to MOST."""
        first, length = first_index(self.ends), self.upper - self.lower

        def value(some: NDArray[np.int64]) -> Float64:
            return scales(self.kernel, self.ends, some, length)

        every = replace(self, indices=largest(MOST, self.dim, first, value))
        kernel = self.kernel.pairs(x, y)
        table = np.cumsum(every(x) * every(y), axis=-1) - kernel[:, None]  # (P, MOST)
        nothing = np.zeros(len(x))

        def bias(n: int) -> Float64:
            return np.asarray(table[:, min(n, table.shape[1]) - 1])

        return Terms(len(self.indices), lambda n: n, kernel, bias, lambda n: nothing)


def first_index(ends: str) -> int:
    """Return the first index of an axis: with Dirichlet ends no eigenfunction is constant."""
    return int(ends == "dirichlet")


def frequencies(ends: str, indices: NDArray[np.int64], length: Float64) -> Float64:
    """Return frequencies of eigenfunctions (M, d) on a box with these sides (d,)."""
    if ends == "periodic":  # 1, cos, sin, cos, sin, ...
        return np.asarray(2 * pi * ((indices + 1) // 2) / length)
    return np.asarray(pi * indices / length)


def scales(kernel: Kernel, ends: str, indices: NDArray[np.int64], length: Float64) -> Float64:
    """Return the roots of what eigenfunctions are weighted by, (M,)."""
    if isinstance(kernel, Periodic):  # e^-k I_j(k) times the period, as eigenfunctions are orthonormal on it
        shares = special.ive((indices + 1) // 2, kernel.concentration) * length
        return np.asarray(np.sqrt(np.prod(shares, axis=1)))
    with np.errstate(over="ignore", divide="ignore", under="ignore"):
        return np.sqrt(density(kernel, frequencies(ends, indices, length)))


def check_ends(kernel: Kernel, ends: str) -> None:
    """Raise unless the kernel has weights for eigenfunctions with these ends."""
    instance_of("kernel", kernel, Kernel)
    if not isinstance(kernel, Periodic):
        check_density(kernel)
    if isinstance(kernel, Periodic) != (ends == "periodic"):
        raise ParameterError(f"ends must be 'periodic' for a Periodic kernel and no other; got {ends!r}")


def _functions(
    xp: ModuleType,
    ends: str,
    which: NDArray[np.int64],
    length: float,
    z: Array,
    slope: bool,
    weights: Float64 | float,
) -> Array:
    """Return weighted eigenfunctions (..., n, m) at z (..., n, 1), from the lower end, or their derivatives."""
    host = frequencies(ends, which[:, None], np.array([length]))[:, 0]
    size = np.where((which == 0) & (ends != "dirichlet"), length**-0.5, (2 / length) ** 0.5) * weights
    cosine = np.full(len(which), ends == "neumann") if ends != "periodic" else (which % 2 == 1) | (which == 0)
    if slope:
        size, cosine = size * host * np.where(cosine, -1, 1), ~cosine
    angle = constant(xp, host, z.dtype, z) * z
    if cosine.all():
        waves = xp.cos(angle)
    elif cosine.any():
        waves = xp.where(xp.asarray(cosine, **placement(z)), xp.cos(angle), xp.sin(angle))
    else:
        waves = xp.sin(angle)
    return constant(xp, size, z.dtype, z) * waves
