"""The rows a kernel is evaluated on: each with each, or one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import final

import numpy as np

from kernattn._array import Array, Host, accumulation_dtype, check_floating, constant, namespace, placement
from kernattn.errors import DTypeError, EmptyInputError, MixedLibraryError, ShapeError

__all__ = ["Rows", "checked_rows"]


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """Rows x and y in the accumulation dtype: each with each where `cross`, else rowwise."""

    xp: ModuleType
    x: Array  # (..., n, d), or (..., d) rowwise
    y: Array  # (..., k, d), or (..., d) rowwise
    cross: bool

    @property
    def dim(self) -> int:
        """The dimension d."""
        return int(self.x.shape[-1])

    def own(self) -> Rows:
        """Return the rows of x, each with itself."""
        return replace(self, y=self.x, cross=False)

    def block(self, rows: slice) -> Rows:
        """Return some rows of x, with all of y."""
        return replace(self, x=self.x[..., rows, :])

    def scaled(self, scale: Host) -> Rows:
        """Return scale * x and scale * y, for a vector (d,)."""
        if np.all(scale == 1.0):
            return self
        c = constant(self.xp, scale, self.x.dtype, self.x)
        return replace(self, x=self.x * c, y=self.y * c)

    def dot(self) -> Array:
        """Return x.y, (..., n, k) or rowwise (...)."""
        if self.cross:
            return self.xp.matmul(self.x, self.xp.matrix_transpose(self.y))
        return self.xp.sum(self.x * self.y, axis=-1)

    def norms(self) -> tuple[Array, Array]:
        """Return |x| and |y|, (..., n, 1) and (..., 1, k) or rowwise (...)."""
        x, y = (self.xp.sqrt(self.xp.sum(a * a, axis=-1)) for a in (self.x, self.y))
        return (x[..., :, None], y[..., None, :]) if self.cross else (x, y)

    def squared_distance(self) -> Array:
        """Return |x - y|^2, (..., n, k) or rowwise (...)."""
        xp = self.xp
        if not self.cross:
            return xp.sum((self.x - self.y) ** 2, axis=-1)
        # rows far from the origin would cancel; a NaN or an infinity stays in its own row
        centre = xp.mean(self.y, axis=-2, keepdims=True)
        centre = xp.where(xp.isfinite(centre), centre, xp.zeros_like(centre))
        x, y = self.x - centre, self.y - centre
        norms = xp.sum(x * x, axis=-1)[..., :, None] + xp.sum(y * y, axis=-1)[..., None, :]
        return xp.clip(norms - 2.0 * xp.matmul(x, xp.matrix_transpose(y)), min=0.0)

    def sum(self, f: Callable[[Array, Array], Array]) -> Array:
        """Return sum_i f(x_i, y_i) over the axes, (..., n, k) or rowwise (...), never (..., n, k, d)."""
        if not self.cross:
            return self.xp.sum(f(self.x, self.y), axis=-1)
        terms = (f(self.x[..., :, None, i], self.y[..., None, :, i]) for i in range(self.dim))
        total = next(terms)
        for term in terms:
            total = total + term
        return total

    def prod(self, f: Callable[[Array, Array], Array]) -> Array:
        """Return prod_i f(x_i, y_i) over the axes, (..., n, k) or rowwise (...), never (..., n, k, d)."""
        if not self.cross:
            return self.xp.prod(f(self.x, self.y), axis=-1)
        terms = (f(self.x[..., :, None, i], self.y[..., None, :, i]) for i in range(self.dim))
        total = next(terms)
        for term in terms:
            total = total * term
        return total


def checked_rows(x: Array, y: Array, cross: bool) -> Rows:
    """Check x and y against each other, and take them into the accumulation dtype."""
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
    return Rows(xp, xp.astype(x, dtype, copy=False), xp.astype(y, dtype, copy=False), cross)
