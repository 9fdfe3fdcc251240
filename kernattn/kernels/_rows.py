"""The rows a kernel is evaluated on: each with each, or one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import log, prod
from types import ModuleType
from typing import Any, final

import numpy as np

from kernattn._arrays.bridge import stop_gradient
from kernattn._arrays.namespaces import (
    Array,
    Float64,
    accumulation_dtype,
    anywhere,
    check_floating,
    constant,
    namespace,
    placement,
)
from kernattn._arrays.shapes import strips
from kernattn._sums.units import in_units, shift_octaves
from kernattn.errors import DTypeError, EmptyInputError, MixedLibraryError, ShapeError
from kernattn.ops.pairwise import OP
from kernattn.ops.pairwise.forms import DOT, MANHATTAN, MINIMA, SQUARED, Form
from kernattn.ops.pairwise.reference import apply_form, measure_rows, prepare_rows
from kernattn.ops.pairwise_product import OP as PRODUCT

KEPT = 16  # numbers of y that are kept for the next block


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """Rows x and y in the accumulation dtype: each with each where `cross`, else rowwise.

    Of rows whose squares could overflow, which are `far`, x and y are those numbers over `units`, powers of two, one
    for each axis; their distances are held within the range of the dtype.
    """

    xp: ModuleType
    x: Array  # (..., n, d), or (..., d) rowwise
    y: Array  # (..., k, d), or (..., d) rowwise
    cross: bool
    units: Float64 | None = None  # (d,) of far rows
    kept: dict[Any, tuple[Array, Any]] = field(default_factory=dict, repr=False)  # what blocks share, made of their y
    values: Array | None = None  # (k, c): what the matrix is multiplied by as it is made
    dtype: Any = None  # of the matrix, where a loop rounds it as it is made

    @property
    def far(self) -> bool:
        """Could squares of these rows overflow?"""
        return self.units is not None

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
        return map(self.block, strips(n, size // prod((*lead, self.y.shape[-2]))))

    def _once(self, name: Any, make: Callable[[], Any]) -> Any:
        """Make an array of y once for all blocks of rows, and return it."""
        key = name, id(self.y)  # which no other array can have while it is kept
        if key not in self.kept:
            if len(self.kept) >= KEPT:
                self.kept.clear()
            self.kept[key] = self.y, make()
        return self.kept[key][1]

    def recentre(self, scale: Float64) -> Rows:
        """Return the rows less a number for each axis, where that is exact: scaled afterwards, they differ by as much.

        It is exact on axes on which y stays within a factor of two of a number (Sterbenz); the others stay. Numbers of
        traced arrays cannot be looked at: theirs stay, too.
        """
        centre = None if np.all(scale == 1.0) else self._once("centre", self._centre)
        if centre is None:
            return self
        c = self.xp.astype(centre, self.x.dtype, copy=False)
        y = self._once("moved", lambda: self.y - c)
        return replace(self, x=y if self.x is self.y else self.x - c, y=y)

    def _centre(self) -> Array | None:
        xp, axes = self.xp, tuple(range(self.y.ndim - 1))
        low, high = xp.min(self.y, axis=axes), xp.max(self.y, axis=axes)
        close = ((high / 2 <= low) | (low / 2 >= high)) & (xp.abs(low) <= self.reach)
        if not anywhere(close & (low != 0)):
            return None
        return stop_gradient(xp.where(close, low, xp.zeros_like(low)))

    def near(self, scale: Float64) -> Rows | None:
        """Return the rows scale * x and scale * y, for a vector (d,); None where one is far."""
        far = any(some for _, some in self._beyond(scale))
        return None if far else replace(self, units=None)._times(scale)

    def evaluate(self, scale: Float64, f: Callable[[Rows], Array]) -> Array:
        """Return f of the rows scale * x and scale * y, for a vector (d,).

        Far rows are taken by themselves: no other is computed in another way because of them. Traced arrays cannot be
        looked at: theirs are computed as written.
        """
        xp, near = self.xp, self.near(scale)
        if near is not None:
            return f(near)
        (x, _), (y, _) = self._beyond(scale)
        near = replace(self, units=None, x=xp.where(x, 0.0, self.x), y=xp.where(y, 0.0, self.y))
        far = x | xp.matrix_transpose(y) if self.cross else (x | y)[..., 0]
        units = 2.0 ** np.maximum(0.0, np.ceil(np.log2(scale)))
        return xp.where(far, f(replace(self._times(scale / units), units=units)), f(near._times(scale)))

    def _beyond(self, scale: Float64) -> tuple[tuple[Array, bool], tuple[Array, bool]]:
        """Return which rows of x, and of y, are far once they are scaled, (..., 1), and whether any is."""
        limit = constant(self.xp, np.minimum(self.reach / scale, 8 * self.largest), self.x.dtype, self.x)

        def beyond(a: Array) -> tuple[Array, bool]:
            rows = self.xp.any(self.xp.abs(a) > limit, axis=-1, keepdims=True)
            return rows, anywhere(rows)

        return beyond(self.x), self._once(("beyond", scale.tobytes()), lambda: beyond(self.y))

    def _times(self, scale: Float64) -> Rows:
        if np.all(scale == 1.0):
            return self
        c = constant(self.xp, scale, self.x.dtype, self.x)
        y = self._once(("times", scale.tobytes()), lambda: self.y * c)
        return replace(self, x=y if self.x is self.y else self.x * c, y=y)

    def of(self, form: Form) -> Array:
        """Return a function of a measure of the rows, (..., n, k) or rowwise (...); times `values`, (n, c)."""
        if self.values is not None:
            y = None if self.x is self.y else self.y
            return PRODUCT.implementation(self.x)(self.x, y, self.values, form)
        if self.far or not self.cross:
            measure = {
                DOT: self._dot,
                SQUARED: self._squared_distance,
                MANHATTAN: self._manhattan_distance,
                MINIMA: self._sum_of_minima,
            }
            return apply_form(self.xp, measure[form.measure](), form)
        if self.has_loop:
            return OP.implementation(self.x)(self.x, self.y, form, self.dtype)
        y = self._once(form.measure, lambda: prepare_rows(self.xp, self.y, form.measure))
        return apply_form(self.xp, measure_rows(self.xp, self.x, y, form.measure), form)

    @property
    def has_loop(self) -> bool:
        """Is there a compiled loop for these rows?"""
        return OP.choose(self.x) != "reference"

    def dot(self) -> Array:
        """Return x.y, (..., n, k) or rowwise (...): infinite where it is beyond the dtype."""
        return self.of(Form(DOT))

    def squared_distance(self) -> Array:
        """Return :math:`|x - y|^2`, (..., n, k) or rowwise (...)."""
        return self.of(Form(SQUARED))

    def _dot(self) -> Array:
        xp, units = self.xp, self.units
        if units is None:
            return xp.sum(self.x * self.y, axis=-1)
        plain = replace(self, units=None)._times(units).dot()
        (x, a), (y, b) = in_units(xp, self.x), in_units(xp, self.y)
        products = replace(self, x=x, y=y, units=None)._times(units).dot()
        octaves = a + xp.matrix_transpose(b) if self.cross else (a + b)[..., 0]
        return xp.where(xp.isfinite(plain), plain, shift_octaves(xp, products, octaves))

    def _squared_distance(self) -> Array:
        return self.sum_apart(lambda z: z**2)

    def _manhattan_distance(self) -> Array:
        return self.sum_apart(self.xp.abs)

    def _sum_of_minima(self) -> Array:
        return self.sum(self.xp.minimum)

    def held_dot(self) -> Array:
        """Return x.y within the range of the dtype."""
        return self.xp.clip(self.dot(), min=-self.largest, max=self.largest)

    def _apart(self, x: Array, y: Array, unit: Array | float) -> Array:
        """Return x - y along an axis, held to where its square cannot overflow if rows are far."""
        if not self.far:
            return x - y
        reach = self.reach / unit
        return 2 * unit * self.xp.clip(x / 2 - y / 2, min=-reach, max=reach)

    def distance(self) -> Array:
        """Return :math:`|x - y|`, (..., n, k) or rowwise (...), whose square may be no float."""
        (size, root), unit = self._distance(), self._double
        most = stop_gradient(self.largest / (unit * root))  # whose tangents are huge
        return unit * self.xp.minimum(size, most) * root

    def log_distance(self) -> Array:
        r"""Return :math:`\log |x - y|`, (..., n, k) or rowwise (...)."""
        xp, (size, root) = self.xp, self._distance()
        known = xp.where(size == 0, xp.ones_like(size), size)
        return xp.where(size == 0, -xp.inf, xp.log(known) + xp.log(root)) + log(self._double)

    @property
    def _double(self) -> float:
        return 1.0 if self.units is None else 2 * float(self.units.max())

    def _distance(self) -> tuple[Array, Array]:
        """Return a and b of |x - y| = unit a b, doubled where rows are far; b from 1 to the root of d."""
        xp, double = self.xp, self._double

        def part(x: Array, y: Array, unit: Array | float) -> Array:
            return (x / 2 - y / 2) * (2 * unit / double) if self.far else x - y

        size = self._fold(lambda *axis: xp.abs(part(*axis)), xp.max, xp.maximum)
        known = xp.where(xp.isfinite(size) & (size > 0), size, xp.ones_like(size))
        known = known if self.cross else known[..., None]
        squares = self._fold(lambda *axis: (part(*axis) / known) ** 2, xp.sum, xp.add)
        return size, xp.sqrt(xp.clip(squares, min=1.0, max=float(self.dim)))

    def sum(self, f: Callable[[Array, Array], Array]) -> Array:
        """Return sum_i f(x_i, y_i) over the axes, (..., n, k) or rowwise (...), never (..., n, k, d)."""
        return self._fold(lambda x, y, _: f(x, y), self.xp.sum, self.xp.add)

    def prod(self, f: Callable[[Array, Array], Array]) -> Array:
        """Return prod_i f(x_i, y_i) over the axes, as `sum`."""
        return self._fold(lambda x, y, _: f(x, y), self.xp.prod, self.xp.multiply)

    def sum_apart(self, f: Callable[[Array], Array]) -> Array:
        """Return sum_i f(x_i - y_i) over the axes, as `sum`."""
        return self._fold(lambda *axis: f(self._apart(*axis)), self.xp.sum, self.xp.add)

    def prod_apart(self, f: Callable[[Array], Array]) -> Array:
        """Return prod_i f(x_i - y_i) over the axes, as `sum`."""
        return self._fold(lambda *axis: f(self._apart(*axis)), self.xp.prod, self.xp.multiply)

    def _fold(
        self, f: Callable[[Array, Array, Array | float], Array], over: Callable[..., Array], op: Callable[..., Array]
    ) -> Array:
        """Return f of the axes and their units, put together by `over` an axis, or by `op` one after the other."""
        units = np.ones(self.dim) if self.units is None else self.units
        if not self.cross:
            return over(f(self.x, self.y, constant(self.xp, units, self.x.dtype, self.x)), axis=-1)
        columns = self._once("columns", lambda: _columns(self.xp, self.y))
        total = f(self.x[..., :, None, 0], columns[..., 0, None, :], float(units[0]))
        for i in range(1, self.dim):
            part = f(self.x[..., :, None, i], columns[..., i, None, :], float(units[i]))
            total = op(total, part, out=total) if isinstance(total, np.ndarray) else op(total, part)
        return total


def _columns(xp: ModuleType, y: Array) -> Array:
    """Return y^T, (..., d, k), whose rows NumPy reads for every row of x."""
    return np.ascontiguousarray(y.swapaxes(-1, -2)) if isinstance(y, np.ndarray) else xp.matrix_transpose(y)


def check_rows(x: Array, y: Array, cross: bool) -> Rows:
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
    except (ValueError, RuntimeError):  # the latter of more axes than NumPy broadcasts
        raise ShapeError(
            f"the leading axes of x and y must broadcast; got shapes {shapes[0]} and {shapes[1]}"
        ) from None
    dtype = accumulation_dtype(xp, x)
    rows = xp.astype(x, dtype, copy=False)
    return Rows(xp, rows, rows if y is x else xp.astype(y, dtype, copy=False), cross)
