"""What a kernel is, and the algebra of kernels: sums, products and multiples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from math import log
from operator import add, mul
from types import ModuleType
from typing import Any, ClassVar, final

from kernattn._arrays.namespaces import Array, anywhere
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.checks import instance_of, moderate_number, shown
from kernattn._runtime.elsewhere import ToldKeywords
from kernattn._sums.units import balance
from kernattn.errors import ParameterError
from kernattn.kernels._pairwise import Pairwise
from kernattn.kernels._rows import Rows


class Kernel(ToldKeywords, Pairwise):
    r"""A kernel :math:`k(x, y)` on rows of d numbers.

    A kernel is a frozen value: kernels with equal parameters are equal, and can be keys of a dict. Calling it gives
    the kernel matrix; `pairs` and `diag` give chosen entries of it without the rest. Kernels add and multiply:
    ``k1 + k2``, ``k1 * k2`` and ``c * k`` with a positive number c are kernels again.
    """

    row_exponent: ClassVar[float] = 0.0
    r"""The number c in :math:`k(x, y) = k_0(x' - y')\, e^{c |x'|^2 + c |y'|^2}`, where k_0 has a spectral measure."""

    attention_weights: ClassVar[bool] = False
    """Is every row of the kernel matrix divided by its sum, as weights of attention are? Its errors then count so."""

    signed: bool = False
    """Can it be negative? Weights of attention cannot."""

    __array_ufunc__ = None  # a NumPy scalar times a kernel is left to the kernel

    @final
    def __add__(self, other: Any) -> Sum:
        if not isinstance(other, Kernel):
            return NotImplemented
        return Sum(_members(Sum, self) + _members(Sum, other))

    @final
    def __mul__(self, other: Any) -> Product | Scaled:
        if not isinstance(other, Kernel):
            return Scaled(other, self)
        if isinstance(self, Scaled):  # a number stands before the product: random features of kernels of x - y see it
            return self.factor * (self.kernel * other)
        if isinstance(other, Scaled):
            return other.factor * (self * other.kernel)
        return Product(_members(Product, self) + _members(Product, other))

    @final
    def __rmul__(self, other: Any) -> Scaled:
        return Scaled(other, self)


@dataclass(frozen=True)
class Combined(Kernel):
    """A kernel made of kernels, its members."""

    kernels: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        _check_kernels(self.kernels)

    @property
    def signed(self) -> bool:  # type: ignore[override]
        """Whether a member is."""
        return any(kernel.signed for kernel in self.kernels)

    @property
    def _takes_integers(self) -> bool:  # type: ignore[override]
        return all(kernel._takes_integers for kernel in self.kernels)

    @final
    def check_domain(self, name: str, x: Array) -> None:
        for kernel in self.kernels:
            kernel.check_domain(name, x)


@final
@dataclass(frozen=True)
class Sum(Combined):
    r"""Sum of kernels, :math:`k(x, y) = \sum_i k_i(x, y)`; written ``k1 + k2``.

    Parameters
    ----------
    kernels : tuple of Kernel
        The terms, at least one.

    Raises
    ------
    ParameterError
        If kernels is no tuple of kernels, or empty.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> kernel = ka.kernels.Gaussian() + ka.kernels.Laplacian()
    >>> kernel.diag(np.ones((2, 3)))
    array([2., 2.])
    """

    def _evaluate(self, rows: Rows) -> Array:
        return reduce(add, (kernel._of(rows) for kernel in self.kernels))

    def _multiply(self, rows: Rows, v: Array, symmetric: bool) -> Array:
        return reduce(add, (kernel._multiply(rows, v, symmetric) for kernel in self.kernels))

    def _logs(self, rows: Rows) -> Array:
        return reduce(rows.xp.logaddexp, (kernel._logs(rows) for kernel in self.kernels))

    def _log_scaled(self, rows: Rows) -> tuple[Array, Array]:
        """Return the sum of the members' values, in the largest of their units."""
        xp, parts = rows.xp, [kernel._log_scaled(rows) for kernel in self.kernels]
        unit = reduce(xp.maximum, (log for _, log in parts))
        return reduce(add, (values * xp.exp(log - unit) for values, log in parts)), unit


@final
@dataclass(frozen=True)
class Product(Combined):
    r"""Product of kernels, :math:`k(x, y) = \prod_i k_i(x, y)`; written ``k1 * k2``.

    Parameters and errors are those of :class:`Sum`.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> kernel = ka.kernels.Gaussian() * ka.kernels.Polynomial(2)
    >>> kernel.diag(2 * np.ones((2, 3)))
    array([144., 144.])
    """

    def _evaluate(self, rows: Rows) -> Array:
        return reduce(partial(_product, rows.xp), (kernel._of(rows) for kernel in self.kernels))

    def _logs(self, rows: Rows) -> Array:
        return reduce(add, (kernel._logs(rows) for kernel in self.kernels))

    def _log_scaled(self, rows: Rows) -> tuple[Array, Array]:
        """Return the products of the members' values and of their units."""
        parts = [balance(ScaledFeatures(*kernel._log_scaled(rows))) for kernel in self.kernels]
        return reduce(mul, (part.values for part in parts)), reduce(add, (part.log_scale for part in parts))


@final
@dataclass(frozen=True)
class Scaled(Kernel):
    r"""Multiple of a kernel, :math:`k(x, y) = c\, k_0(x, y)`; written ``c * k``.

    Parameters
    ----------
    factor : float
        The number c, positive.
    kernel : Kernel
        The kernel.

    Raises
    ------
    ParameterError
        If the factor is not a positive finite number, or kernel no kernel.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> (3 * ka.kernels.Gaussian()).diag(np.ones((2, 3)))
    array([3., 3.])
    """

    factor: float
    kernel: Kernel

    def __post_init__(self) -> None:
        object.__setattr__(self, "factor", moderate_number("the factor of a kernel", self.factor))
        _check_kernels((self.kernel,))

    @property
    def signed(self) -> bool:  # type: ignore[override]
        """Whether the kernel is."""
        return self.kernel.signed

    @property
    def _takes_integers(self) -> bool:  # type: ignore[override]
        return self.kernel._takes_integers

    def _evaluate(self, rows: Rows) -> Array:
        return self.factor * self.kernel._of(rows)

    def _multiply(self, rows: Rows, v: Array, symmetric: bool) -> Array:
        return self.factor * self.kernel._multiply(rows, v, symmetric)

    def _logs(self, rows: Rows) -> Array:
        return self.kernel._logs(rows) + log(self.factor)

    def _log_scaled(self, rows: Rows) -> tuple[Array, Array]:
        values, unit = self.kernel._log_scaled(rows)
        return self.factor * values, unit

    def check_domain(self, name: str, x: Array) -> None:
        self.kernel.check_domain(name, x)


def _product(xp: ModuleType, a: Array, b: Array) -> Array:
    """Return a b, where 0 times what is beyond the dtype is 0."""
    return xp.where(a == 0, a, xp.where(b == 0, b, a * b)) if anywhere(xp.isinf(a) | xp.isinf(b)) else a * b


def _members(kind: type[Combined], kernel: Kernel) -> tuple[Kernel, ...]:
    return kernel.kernels if isinstance(kernel, kind) else (kernel,)


def _check_kernels(kernels: Any) -> None:
    if not isinstance(kernels, tuple) or not kernels:
        raise ParameterError(f"kernels must be a tuple of kernels, at least one; got {shown(kernels)}")
    for kernel in kernels:
        instance_of("kernel", kernel, Kernel)
