"""The Tanimoto kernel, for sets, bits and counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, anywhere, namespace
from kernattn._runtime.checks import one_of
from kernattn._sums.units import in_units, shift_octaves
from kernattn.errors import ParameterError
from kernattn.kernels._base import Kernel
from kernattn.kernels._rows import Rows
from kernattn.kernels._tanimoto_csr import shares_of
from kernattn.ops.pairwise.forms import MINIMA, Form
from kernattn.ops.shared_bits import OP

FORMS = "minmax", "dot"
PART = 2.0**-32  # of numbers whose sums could overflow


@final
@dataclass(frozen=True)
class Tanimoto(Kernel):
    r"""Tanimoto kernel, :math:`k(x, y) = \sum_i \min(x_i, y_i) / \sum_i \max(x_i, y_i)`, for :math:`x, y \ge 0`.

    Ralaivola, Swamidass, Saigo and Baldi (2005). Of bits it is the Jaccard index, the share of the features of either
    molecule that both have. The form "dot", :math:`x^T y / (|x|^2 + |y|^2 - x^T y)`, is the same for bits, another
    kernel for counts, smooth, and defined for numbers of either sign. Two rows of zeros have k = 1, as in SciPy and
    GAUCHE, where RDKit has 0; a row of zeros and another one have k = 0.

    Bits and whole numbers (bool and integer arrays) are read as float32, in which their sums are exact up to 2^24.

    Parameters
    ----------
    form : {"minmax", "dot"}
        Which of the two.

    Raises
    ------
    ParameterError
        If form is no such name; when "minmax" is evaluated, if a value is negative, infinite or NaN (of arrays whose
        values are known: traced ones cannot be looked at).

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> bits = np.array([[1, 1, 1, 0], [0, 1, 1, 1]], np.uint8)
    >>> ka.kernels.Tanimoto()(bits)
    array([[1. , 0.5],
           [0.5, 1. ]], dtype=float32)
    """

    form: str = "minmax"
    _takes_integers = True

    def __post_init__(self) -> None:
        one_of("form", self.form, FORMS)

    @property
    def signed(self) -> bool:  # type: ignore[override]
        """Whether the form is "dot", which products of numbers of two signs make negative."""
        return self.form == "dot"

    def check_domain(self, name: str, x: Array) -> None:
        """Raise where a value of x is not one that "minmax" takes; see `Kernel.check_domain`."""
        if self.form == "minmax" and anywhere(~(x >= 0) | namespace(x=x).isinf(x)):
            raise ParameterError(
                f"{name} must hold finite numbers that are not negative: Tanimoto compares sets, bits and counts; "
                "form='dot' takes numbers of either sign"
            )

    def _csr_rows(self, x: Any, y: Any) -> Callable[[slice], Array] | None:
        return shares_of(x, y, self.check_domain) if self.form == "minmax" else None

    def _evaluate(self, rows: Rows) -> Array:
        return _of_products(rows) if self.form == "dot" else _of_minima(rows)


def _of_minima(rows: Rows) -> Array:
    """Return sum min / sum max. Of bits, minima are products, which are faster."""
    xp = rows.xp
    if rows.far:
        rows = replace(rows, x=PART * rows.x, y=PART * rows.y, units=None, kept={})
    bits = _are_bits(xp, rows.x) and rows._once("bits", lambda: _are_bits(xp, rows.y))
    shared = _shared_bits(rows) if bits else rows.of(Form(MINIMA))
    x, y = xp.sum(rows.x, axis=-1, keepdims=True), rows._once("sums", lambda: xp.sum(rows.y, axis=-1, keepdims=True))
    total = x + xp.matrix_transpose(y) if rows.cross else (x + y)[..., 0]
    return _share(xp, shared, total - shared)


def _are_bits(xp: ModuleType, x: Array) -> bool:
    """Whether all numbers are known to be 0 or 1."""
    return anywhere(xp.all((x == 0) | (x == 1)))


def _shared_bits(rows: Rows) -> Array:
    """Return x^T y of rows of zeros and ones."""
    matrix = rows.cross and rows.x.ndim == rows.y.ndim == 2
    if not matrix or not isinstance(rows.x, np.ndarray) or OP.choose(rows.x) != "cpu":
        return rows.dot()
    out = np.empty((len(rows.x), len(rows.y)), rows.x.dtype)
    OP.function("cpu")(_words(rows.x), rows._once("words", lambda: _words(rows.y)), out)
    return out


def _words(x: NDArray[Any]) -> NDArray[np.uint64]:
    """Return rows of zeros and ones as bits in words of 64."""
    packed = np.packbits(x != 0, axis=-1)
    return np.pad(packed, ((0, 0), (0, -packed.shape[1] % 8))).view(np.uint64)


def _of_products(rows: Rows) -> Array:
    r"""Return :math:`x^T y / (|x|^2 + |y|^2 - x^T y)` of rows over powers of two of their sizes, :math:`2^a` and
    :math:`2^b`, so that :math:`2^{a - b} |x'|^2 + 2^{b - a} |y'|^2 - x'^T y'` is the denominator.
    """
    xp = rows.xp

    def parts(a: Array) -> tuple[Array, Array, Array]:
        small, octaves = in_units(xp, a)
        return small, octaves, xp.sum(small * small, axis=-1, keepdims=True)

    x, a, x_squares = parts(rows.x)
    y, b, y_squares = rows._once("parts", lambda: parts(rows.y))
    shared = replace(rows, x=x, y=y, units=None).dot()
    if rows.cross:
        b, y_squares = xp.matrix_transpose(b), xp.matrix_transpose(y_squares)
    apart = a - b  # a row of zeros has none: its squares are 0 in any unit
    squares = shift_octaves(xp, x_squares, apart) + shift_octaves(xp, y_squares, -apart)
    return _share(xp, shared, (squares if rows.cross else squares[..., 0]) - shared)


def _share(xp: ModuleType, shared: Array, total: Array) -> Array:
    """Return shared / total, 1 of two rows of zeros, of which both are 0."""
    nothing = total == 0
    return xp.where(nothing, xp.ones_like(total), shared / xp.where(nothing, xp.ones_like(total), total))
