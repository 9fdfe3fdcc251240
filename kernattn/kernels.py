"""Exact kernels: what the random features estimate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import ModuleType
from typing import Any, final

import numpy as np

from kernattn._array import Array, Host, accumulation_dtype, check_floating, constant, namespace, placement
from kernattn._check import positive_number
from kernattn.errors import EmptyInputError, ParameterError, ShapeError

__all__ = ["KERNELS", "Gaussian", "Kernel", "Softmax"]


class Kernel(ABC):
    """A positive definite function of two rows; calling it gives the matrix of all pairs."""

    @abstractmethod
    def input_scale(self, dim: int) -> Host:
        """Return c (d,): the kernel acts on x' = c x and y' = c y."""

    @abstractmethod
    def matrix(self, xp: ModuleType, x: Array, y: Array) -> Array:
        """Return all pairs of scaled rows: (..., n, d), (..., k, d) -> (..., n, k)."""

    @abstractmethod
    def rowwise(self, xp: ModuleType, x: Array, y: Array) -> Array:
        """Return rowwise pairs of scaled rows: (..., d), (..., d) -> (...)."""

    @final
    def __call__(self, x: Array, y: Array | None = None) -> Array:
        """Return the matrix of all pairs: (..., n, d), (..., k, d) -> (..., n, k), with y = x by default."""
        xp, (x_scaled, y_scaled) = self._scaled(2, x=x) if y is None else self._scaled(2, x=x, y=y)
        values = self.matrix(xp, x_scaled, y_scaled)
        if y is None:  # of a row with itself, the rowwise form is exact
            rows = xp.arange(x.shape[-2], **placement(x))
            own = self.rowwise(xp, x_scaled, x_scaled)[..., None]
            values = xp.where(rows[:, None] == rows[None, :], own, values)
        return xp.astype(values, x.dtype, copy=False)

    @final
    def pairs(self, x: Array, y: Array) -> Array:
        """Return the kernel of rowwise pairs: (..., d), (..., d) -> (...)."""
        xp, (x_scaled, y_scaled) = self._scaled(1, x=x, y=y)
        return xp.astype(self.rowwise(xp, x_scaled, y_scaled), x.dtype, copy=False)

    @final
    def diag(self, x: Array) -> Array:
        """Return the kernel of every row with itself: (..., n, d) -> (..., n)."""
        return self.pairs(x, x)

    def _scaled(self, axes: int, **arrays: Array) -> tuple[ModuleType, tuple[Array, Array]]:
        xp = namespace(**arrays)
        for name, array in arrays.items():
            check_floating(name, array)
            if array.ndim < axes:
                raise ShapeError(f"{name} must be ({'..., n, d' if axes == 2 else '..., d'}); got {tuple(array.shape)}")
            if 0 in array.shape:
                raise EmptyInputError(f"{name} must not be empty; got shape {tuple(array.shape)}")
        shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        if len({shape[-1] for shape in shapes.values()}) > 1:
            raise ShapeError(f"x and y must have the same last axis (d); got {shapes}")
        scaled = []
        for array in arrays.values():
            dtype = accumulation_dtype(xp, array)
            scale = constant(xp, self.input_scale(array.shape[-1]), dtype, array)
            scaled.append(xp.astype(array, dtype, copy=False) * scale)
        return xp, (scaled[0], scaled[-1])


@final
@dataclass(frozen=True, eq=False)
class Gaussian(Kernel):
    r""":math:`k(x, y) = \exp(-\tfrac12 \sum_i (x_i - y_i)^2 / \ell_i^2)`.

    Parameters
    ----------
    lengthscale : float or (d,) array of float
        The lengthscale :math:`\ell`, one for all coordinates or one for each; positive.

    Raises
    ------
    ParameterError
        If a lengthscale is not a positive finite number.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.kernels.Gaussian(lengthscale=2.0)(np.array([[0.0], [2.0]])).round(4)
    array([[1.    , 0.6065],
           [0.6065, 1.    ]])
    """

    lengthscale: Any = 1.0

    def __post_init__(self) -> None:
        """Check the lengthscale, and keep a copy that cannot be written to."""
        if np.ndim(self.lengthscale) == 0:
            object.__setattr__(self, "lengthscale", positive_number("lengthscale", self.lengthscale))
            return
        scales = np.array(self.lengthscale, dtype=np.float64)
        if scales.ndim != 1 or scales.size == 0 or not np.all(np.isfinite(scales) & (scales > 0)):
            raise ParameterError(f"lengthscale must be a positive number or d of them; got {self.lengthscale!r}")
        scales.setflags(write=False)
        object.__setattr__(self, "lengthscale", scales)

    def input_scale(self, dim: int) -> Host:
        """Return 1 / lengthscale, (d,)."""
        if np.ndim(self.lengthscale) and len(self.lengthscale) != dim:
            raise ShapeError(f"the kernel has {len(self.lengthscale)} lengthscales, the rows have d = {dim} columns")
        return np.broadcast_to(1.0 / np.asarray(self.lengthscale), (dim,))

    def matrix(self, xp: ModuleType, x: Array, y: Array) -> Array:
        """Return all pairs of scaled rows: (..., n, d), (..., k, d) -> (..., n, k)."""
        squares = xp.sum(x * x, axis=-1)[..., :, None] + xp.sum(y * y, axis=-1)[..., None, :]
        distance = squares - 2 * xp.matmul(x, xp.matrix_transpose(y))
        return xp.exp(-0.5 * xp.maximum(distance, xp.zeros_like(distance)))

    def rowwise(self, xp: ModuleType, x: Array, y: Array) -> Array:
        """Return rowwise pairs of scaled rows: (..., d), (..., d) -> (...)."""
        difference = x - y
        return xp.exp(-0.5 * xp.sum(difference * difference, axis=-1))


@final
@dataclass(frozen=True, eq=False)
class Softmax(Kernel):
    r""":math:`k(x, y) = \exp(s\, x^T y)`, the kernel of attention.

    Parameters
    ----------
    scale : float, optional
        The factor s; :math:`d^{-1/2}` by default, as in Vaswani et al. (2017). It belongs to the kernel: inputs are
        not scaled beforehand.

    Raises
    ------
    ParameterError
        If scale is not a positive finite number.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.kernels.Softmax()(np.ones((1, 4))).round(4)
    array([[7.3891]])
    """

    scale: float | None = None

    def __post_init__(self) -> None:
        """Check the scale."""
        if self.scale is not None:
            object.__setattr__(self, "scale", positive_number("scale", self.scale))

    def input_scale(self, dim: int) -> Host:
        """Return the square root of the scale, (d,)."""
        return np.full(dim, np.sqrt(dim**-0.5 if self.scale is None else self.scale))

    def matrix(self, xp: ModuleType, x: Array, y: Array) -> Array:
        """Return all pairs of scaled rows: (..., n, d), (..., k, d) -> (..., n, k)."""
        return xp.exp(xp.matmul(x, xp.matrix_transpose(y)))

    def rowwise(self, xp: ModuleType, x: Array, y: Array) -> Array:
        """Return rowwise pairs of scaled rows: (..., d), (..., d) -> (...)."""
        return xp.exp(xp.sum(x * y, axis=-1))


KERNELS: dict[str, type[Kernel]] = {"gaussian": Gaussian, "softmax": Softmax}
