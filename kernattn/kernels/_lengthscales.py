"""Lengthscales of a kernel, or of the members of one, and the kernel with others."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from kernattn._runtime.checks import shown
from kernattn.errors import ParameterError
from kernattn.kernels._base import Kernel, Product, Scaled, Sum
from kernattn.kernels._stationary import Stationary


def lengthscales_of(kernel: Kernel) -> Any:
    """Return an array () or (d,), a tuple of those of a sum's or a product's members, or None where there is none."""
    if isinstance(kernel, Scaled):
        return lengthscales_of(kernel.kernel)
    if isinstance(kernel, Sum | Product):
        return tuple(map(lengthscales_of, kernel.kernels))
    return np.asarray(kernel.lengthscale, np.float64) if isinstance(kernel, Stationary) else None


def with_lengthscales(kernel: Kernel, given: Any) -> Kernel:
    """Return the kernel with other lengthscales, of the form that `lengthscales_of` returns; None leaves them."""
    if given is None:
        return kernel
    if isinstance(kernel, Scaled):
        return replace(kernel, kernel=with_lengthscales(kernel.kernel, given))
    if isinstance(kernel, Sum | Product):
        return replace(kernel, kernels=each_of(kernel.kernels, given, with_lengthscales))
    if not isinstance(kernel, Stationary):
        raise ParameterError(f"lengthscale must be None for {shown(kernel)}, which has none here; got {shown(given)}")
    return replace(kernel, lengthscale=given)  # type: ignore[type-var]


def each_of(members: tuple[Any, ...], given: Any, put: Callable[[Any, Any], Any]) -> tuple[Any, ...]:
    """Return members with their own lengthscales."""
    if not isinstance(given, tuple) or len(given) != len(members):
        raise ParameterError(
            f"lengthscale must be a tuple of those of {len(members)} members, None of one that stays; "
            f"got {shown(given)}"
        )
    return tuple(put(member, one) for member, one in zip(members, given, strict=True))


def leaves(numbers: Any) -> list[Any]:
    """Return the lengthscales of all members in order, None of those that have none."""
    return [leaf for each in numbers for leaf in leaves(each)] if isinstance(numbers, tuple) else [numbers]


def added(one: Any, other: Any) -> Any:
    """Return the sums of two lots of lengthscales."""
    if isinstance(one, tuple):
        return tuple(added(a, b) for a, b in zip(one, other, strict=True))
    return None if one is None else one + other


def beside(numbers: Any, put: Callable[[Any], Any]) -> Any:
    """Return lengthscales as a function makes each."""
    if isinstance(numbers, tuple):
        return tuple(beside(each, put) for each in numbers)
    return None if numbers is None else put(numbers)
