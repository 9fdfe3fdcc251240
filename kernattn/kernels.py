r"""Exact kernels: the functions k(x, y) that random features estimate.

Every kernel scales its inputs once, x' = c x with `Kernel.input_scale`, and is then a fixed function of x' and y'.
Arrays of any array-API library come back as their own kind, on their device, in their dtype; float16 and bfloat16 are
computed in float32.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, final

import numpy as np

from kernattn._array import Array, Host, accumulation_dtype, check_floating, constant, namespace, placement
from kernattn._check import positive_integer, positive_number
from kernattn.errors import DTypeError, EmptyInputError, MixedLibraryError, ParameterError, ShapeError

__all__ = ["KERNELS", "Gaussian", "Kernel", "Softmax"]


class Kernel(ABC):
    r"""A kernel :math:`k(x, y)` on rows of d numbers.

    A kernel is a frozen value: kernels with equal parameters are equal, and can be keys of a dict. Calling it gives
    the kernel matrix; `pairs` and `diag` give chosen entries of it without the rest.
    """

    @abstractmethod
    def input_scale(self, d: int) -> Host:
        """Return the vector c, float64 of shape (d,), that scales the inputs: x' = c x.

        Parameters
        ----------
        d : int
            Input dimension.

        Returns
        -------
        (d,) numpy.ndarray
            The scale, positive.
        """

    @abstractmethod
    def _evaluate(self, rows: _Rows) -> Array:
        """Return the kernel of scaled rows."""

    @final
    def __call__(self, x: Array, y: Array | None = None) -> Array:
        """Return the kernel matrix K_ij = k(x_i, y_j).

        Parameters
        ----------
        x : (..., n, d) array
            Rows, of a real floating dtype.
        y : (..., k, d) array, optional
            Other rows, of the library and dtype of x; leading axes broadcast. Without it y = x, and the diagonal is
            exactly `diag` of x.

        Returns
        -------
        (..., n, k) array
            The matrix, of the kind, device and dtype of x.

        Raises
        ------
        ShapeError
            If the last axes differ, the leading ones do not broadcast, or an axis is empty.
        DTypeError
            If x or y is no array of a real floating dtype, or their dtypes differ.
        MixedLibraryError
            If x and y come from two libraries or devices.
        """
        rows = _rows(self, x, x if y is None else y, cross=True)
        matrix = self._evaluate(rows)  # (..., n, k)
        if y is None:
            i = rows.xp.arange(x.shape[-2], **placement(x))
            entries = self._evaluate(_Rows(rows.xp, rows.x, rows.x, cross=False))  # (..., n)
            matrix = rows.xp.where(i[:, None] == i[None, :], entries[..., None], matrix)
        return rows.xp.astype(matrix, x.dtype, copy=False)

    @final
    def pairs(self, x: Array, y: Array) -> Array:
        """Return k(x_i, y_i), the kernel of rowwise pairs.

        Parameters
        ----------
        x, y : (..., d) array
            Rows, of one library and one real floating dtype; leading axes broadcast.

        Returns
        -------
        (...) array
            The entries, of the kind, device and dtype of x.

        Raises
        ------
        ShapeError
            If the last axes differ, the leading ones do not broadcast, or an axis is empty.
        DTypeError
            If x or y is no array of a real floating dtype, or their dtypes differ.
        MixedLibraryError
            If x and y come from two libraries or devices.
        """
        rows = _rows(self, x, y, cross=False)
        return rows.xp.astype(rows.xp.asarray(self._evaluate(rows)), x.dtype, copy=False)

    @final
    def diag(self, x: Array) -> Array:
        """Return k(x_i, x_i), the diagonal of the kernel matrix.

        Parameters
        ----------
        x : (..., n, d) array
            Rows, of a real floating dtype.

        Returns
        -------
        (..., n) array
            The diagonal, of the kind, device and dtype of x.

        Raises
        ------
        ShapeError
            If x has fewer than two axes, or an empty one.
        DTypeError
            If x is no array of a real floating dtype.
        """
        rows = _rows(self, x, x, cross=True)
        entries = self._evaluate(_Rows(rows.xp, rows.x, rows.x, cross=False))
        return rows.xp.astype(entries, x.dtype, copy=False)


@final
@dataclass(frozen=True)
class Gaussian(Kernel):
    r"""Gaussian kernel, :math:`k(x, y) = \exp(-\frac{1}{2} \sum_i (x_i - y_i)^2 / \ell_i^2)`.

    Rasmussen and Williams (2006), equation 4.9, and equation 5.1 for one lengthscale an axis (automatic relevance
    determination). The distances of a matrix are :math:`|x'|^2 + |y'|^2 - 2 x'^T y'` around the mean of y, clamped at
    0.

    Parameters
    ----------
    lengthscale : float or (d,) array_like
        The lengthscale :math:`\ell`, positive: one number, or one for each axis. It is kept as a float or a tuple of
        floats.

    Raises
    ------
    ParameterError
        If the lengthscale is not a positive finite number or a vector of them.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> kernel = ka.kernels.Gaussian(lengthscale=[1.0, 2.0])
    >>> x = np.array([[0.0, 0.0], [1.0, 2.0]])
    >>> kernel(x).round(4)
    array([[1.    , 0.3679],
           [0.3679, 1.    ]])
    >>> kernel.pairs(x, x[::-1]).round(4)
    array([0.3679, 0.3679])
    """

    lengthscale: float | Sequence[float] | Host = 1.0

    def __post_init__(self) -> None:
        """Check the lengthscale, and keep it as plain numbers."""
        object.__setattr__(self, "lengthscale", _positive_numbers("lengthscale", self.lengthscale))

    def input_scale(self, d: int) -> Host:
        """Return c = 1 / lengthscale, so that k = exp(-|x' - y'|^2 / 2) with x' = c x.

        Parameters
        ----------
        d : int
            Input dimension; the length of the lengthscale if that is a vector.

        Returns
        -------
        (d,) numpy.ndarray
            The scale.

        Raises
        ------
        ShapeError
            If there are lengthscales for another number of axes.
        """
        lengthscale = np.asarray(self.lengthscale, dtype=np.float64)
        if lengthscale.shape not in ((), (positive_integer("d", d),)):
            raise ShapeError(
                f"lengthscale has {lengthscale.size} entries, for inputs of d = {lengthscale.size}; got d = {d}"
            )
        return np.broadcast_to(1.0 / lengthscale, (d,)).copy()

    def _evaluate(self, rows: _Rows) -> Array:
        return rows.xp.exp(-0.5 * rows.squared_distance())


@final
@dataclass(frozen=True)
class Softmax(Kernel):
    r"""Softmax kernel, :math:`k(x, y) = \exp(s\, x^T y)`, the unnormalised weight of attention.

    Vaswani et al. (2017) for the scale; Choromanski et al. (2021), section 2.2, for the kernel.

    Parameters
    ----------
    scale : float, optional
        The scale s, positive. None is :math:`d^{-1/2}`, for whatever d the inputs have.

    Raises
    ------
    ParameterError
        If the scale is not a positive finite number.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> kernel = ka.kernels.Softmax()
    >>> x = np.array([[1.0, 1.0, 1.0, 1.0], [1.0, 0.0, 0.0, 0.0]])
    >>> np.log(kernel(x)).round(4)
    array([[2. , 0.5],
           [0.5, 0.5]])
    """

    scale: float | None = None

    def __post_init__(self) -> None:
        """Check the scale."""
        if self.scale is not None:
            object.__setattr__(self, "scale", positive_number("scale", self.scale))

    def input_scale(self, d: int) -> Host:
        """Return c = s^(1/2), so that k = exp(x'.y') with x' = c x; d^(-1/4) by default.

        Parameters
        ----------
        d : int
            Input dimension.

        Returns
        -------
        (d,) numpy.ndarray
            The scale.
        """
        d = positive_integer("d", d)
        return np.full(d, d**-0.25 if self.scale is None else self.scale**0.5)

    def _evaluate(self, rows: _Rows) -> Array:
        return rows.xp.exp(rows.dot())


KERNELS: dict[str, type[Kernel]] = {"gaussian": Gaussian, "softmax": Softmax}


@final
@dataclass(frozen=True, eq=False)
class _Rows:
    """Scaled rows x' and y' in the accumulation dtype: each with each where `cross`, else rowwise."""

    xp: ModuleType
    x: Array  # (..., n, d), or (..., d) rowwise
    y: Array  # (..., k, d), or (..., d) rowwise
    cross: bool

    def dot(self) -> Array:
        """Return x'.y', (..., n, k) or rowwise (...)."""
        if self.cross:
            return self.xp.matmul(self.x, self.xp.matrix_transpose(self.y))
        return self.xp.sum(self.x * self.y, axis=-1)

    def squared_distance(self) -> Array:
        """Return |x' - y'|^2, (..., n, k) or rowwise (...)."""
        xp = self.xp
        if not self.cross:
            return xp.sum((self.x - self.y) ** 2, axis=-1)
        # rows far from the origin would cancel; a NaN or an infinity stays in its own row
        centre = xp.mean(self.y, axis=-2, keepdims=True)
        centre = xp.where(xp.isfinite(centre), centre, xp.zeros_like(centre))
        x, y = self.x - centre, self.y - centre
        norms = xp.sum(x * x, axis=-1)[..., :, None] + xp.sum(y * y, axis=-1)[..., None, :]
        return xp.clip(norms - 2.0 * xp.matmul(x, xp.matrix_transpose(y)), min=0.0)


def _rows(kernel: Kernel, x: Array, y: Array, cross: bool) -> _Rows:
    """Check x and y, and scale them."""
    xp = namespace(x=x, y=y)
    dtypes = check_floating("x", x), check_floating("y", y)
    if dtypes[0] != dtypes[1]:
        raise DTypeError(f"x and y must have one dtype; got {dtypes[0]} and {dtypes[1]}")
    if placement(x) != placement(y):
        raise MixedLibraryError(
            f"x and y must be on one device; got {placement(x)['device']} and {placement(y)['device']}"
        )
    shapes, own = (tuple(x.shape), tuple(y.shape)), 2 if cross else 1
    for name, shape in zip("xy", shapes, strict=True):
        if len(shape) < own:
            raise ShapeError(f"{name} must be {'(..., n, d)' if cross else '(..., d)'}; got shape {shape}")
        if 0 in shape:
            raise EmptyInputError(f"{name} must have no empty axis; got shape {shape}")
    if shapes[0][-1] != shapes[1][-1]:
        raise ShapeError(f"x and y must agree in their last axis; got shapes {shapes[0]} and {shapes[1]}")
    try:
        np.broadcast_shapes(shapes[0][:-own], shapes[1][:-own])
    except ValueError:
        raise ShapeError(
            f"the leading axes of x and y must broadcast; got shapes {shapes[0]} and {shapes[1]}"
        ) from None
    dtype = accumulation_dtype(xp, x)
    scale = constant(xp, kernel.input_scale(shapes[0][-1]), dtype, x)
    return _Rows(xp, xp.astype(x, dtype, copy=False) * scale, xp.astype(y, dtype, copy=False) * scale, cross)


def _positive_numbers(name: str, values: Any) -> float | tuple[float, ...]:
    """Return a positive finite number as a float, a vector of them as a tuple."""
    try:
        given = np.asarray(values)
    except (TypeError, ValueError):
        given = np.empty(0)
    if (
        given.dtype.kind not in "iuf"
        or given.ndim > 1
        or given.size == 0
        or not np.all(np.isfinite(given) & (given > 0))
    ):
        raise ParameterError(f"{name} must be a positive finite number or a vector of them; got {values!r}")
    return float(given) if given.ndim == 0 else tuple(given.astype(np.float64).tolist())
