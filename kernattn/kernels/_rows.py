"""The rows a kernel is evaluated on: each with each, or one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from types import ModuleType
from typing import final

import numpy as np

from kernattn._array import Array, Float64, accumulation_dtype, check_floating, constant, namespace, placement
from kernattn.errors import DTypeError, EmptyInputError, MixedLibraryError, ShapeError

__all__ = ["Rows", "anywhere", "checked_rows"]


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """Rows x and y in the accumulation dtype: each with each where `cross`, else rowwise.

    Where a number is so large that its square could overflow, `far`, distances and products are held within the
    range of the dtype. Traced arrays cannot be looked at: theirs are computed as written.
    """

    xp: ModuleType
    x: Array  # (..., n, d), or (..., d) rowwise
    y: Array  # (..., k, d), or (..., d) rowwise
    cross: bool
    far: bool = False

    @property
    def largest(self) -> float:
        """The largest number that results are held to, an eighth of what the dtype can hold."""
        return float(self.xp.finfo(self.x.dtype).max) / 8

    @property
    def reach(self) -> float:
        """The largest number whose squared distances are safe."""
        return float(np.sqrt(self.largest / self.dim) / 4)

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

    def blocks(self, size: int) -> Iterator[Rows]:
        """Return the rows in parts, whose matrices have about so many entries."""
        lead, n = np.broadcast_shapes(tuple(self.x.shape[:-2]), tuple(self.y.shape[:-2])), self.x.shape[-2]
        step = max(1, size // prod((*lead, self.y.shape[-2])))
        return (self.block(slice(i, min(i + step, n))) for i in range(0, n, step))

    def scaled(self, scale: Float64) -> Rows:
        """Return scale * x and scale * y, for a vector (d,)."""
        limit = self.reach / max(1.0, float(scale.max()))
        far = any(anywhere(self.xp.abs(a) > limit) for a in (self.x, self.y))
        if np.all(scale == 1.0):
            return replace(self, far=far)
        x, y = self.x, self.y
        if far:  # only numbers whose multiple no float can hold are held: others keep their differences
            kind = self.xp.finfo(x.dtype)
            most = float(kind.max) * (1 - 4 * float(kind.eps))
            hold = constant(self.xp, most / np.maximum(scale, 1.0), x.dtype, x)
            x, y = (self.xp.minimum(self.xp.maximum(a, -hold), hold) for a in (x, y))
        c = constant(self.xp, scale, self.x.dtype, self.x)
        return replace(self, x=x * c, y=y * c, far=far)

    def dot(self) -> Array:
        """Return x.y, (..., n, k) or rowwise (...)."""
        if self.far:
            return self._held_dot()
        if self.cross:
            return self.xp.matmul(self.x, self.xp.matrix_transpose(self.y))
        return self.xp.sum(self.x * self.y, axis=-1)

    def _held_dot(self) -> Array:
        xp, (x, y), (a, b) = self.xp, self.units(), self.sizes()
        product = xp.matmul(x, xp.matrix_transpose(y)) if self.cross else xp.sum(x * y, axis=-1)
        hold = self.largest / a / b
        return xp.minimum(xp.maximum(product, -hold), hold) * a * b

    def sizes(self) -> tuple[Array, Array]:
        """Return max_i |x_i| and max_i |y_i|, 1 where these are less, shaped as `norms`."""
        x, y = (self.xp.clip(self.xp.max(self.xp.abs(a), axis=-1), min=1.0) for a in (self.x, self.y))
        return (x[..., :, None], y[..., None, :]) if self.cross else (x, y)

    def units(self) -> tuple[Array, Array]:
        """Return x and y over their sizes."""
        a, b = replace(self, cross=False).sizes()
        return self.x / a[..., None], self.y / b[..., None]

    def norms(self) -> tuple[Array, Array]:
        """Return |x| and |y|, (..., n, 1) and (..., 1, k) or rowwise (...)."""
        given, sizes = (self.units(), self.sizes()) if self.far else ((self.x, self.y), None)
        x, y = (self.xp.sqrt(self.xp.sum(a * a, axis=-1)) for a in given)
        x, y = (x[..., :, None], y[..., None, :]) if self.cross else (x, y)
        return (x, y) if sizes is None else (self._times(x, sizes[0]), self._times(y, sizes[1]))

    def _times(self, a: Array, size: Array) -> Array:
        return self.xp.minimum(a, self.largest / size) * size

    def apart(self, x: Array, y: Array) -> Array:
        """Return x - y, held to where its square cannot overflow if numbers are far."""
        if not self.far:
            return x - y
        return 2 * self.xp.clip(x / 2 - y / 2, min=-self.reach, max=self.reach)

    def squared_distance(self) -> Array:
        """Return |x - y|^2, (..., n, k) or rowwise (...)."""
        xp = self.xp
        if self.far:
            return self.sum(lambda x, y: self.apart(x, y) ** 2)
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


def anywhere(condition: Array) -> bool:
    """Is the condition true somewhere? A traced array cannot tell: no."""
    try:
        return bool(namespace(condition=condition).any(condition))
    except TypeError:
        return False


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
