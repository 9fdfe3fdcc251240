"""Lengthscales of a kernel, or of the members of one, and the kernel with others; the walk is that of maps, too."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from kernattn._runtime.checks import shown
from kernattn.errors import ParameterError
from kernattn.kernels._base import Kernel, Product, Scaled, Sum
from kernattn.kernels._stationary import Stationary


@final
@dataclass(frozen=True)
class Walk:
    """A way through multiples, whose numbers are those of what they are of, and through sums and products.

    Numbers of a sum or a product are a tuple of those of its members; None stands for one that has none, or that stays.
    """

    multiple: tuple[type, ...]
    inner: str  # where a multiple has what it is of
    joined: tuple[type, ...]
    members: str  # where they have their members
    own: Callable[[Any], Any]  # the numbers of one without members
    put: Callable[[Any, Any], Any]  # it with other numbers

    def numbers(self, one: Any) -> Any:
        """Return the numbers of a kernel, or of a map."""
        if isinstance(one, self.multiple):
            return self.numbers(getattr(one, self.inner))
        if isinstance(one, self.joined):
            return tuple(map(self.numbers, getattr(one, self.members)))
        return self.own(one)

    def change(self, one: Any, given: Any) -> Any:
        """Return a kernel, or a map, with other numbers, of the form that `numbers` returns."""
        if given is None:
            return one
        if isinstance(one, self.multiple):
            return replace(one, **{self.inner: self.change(getattr(one, self.inner), given)})  # type: ignore[type-var]
        if not isinstance(one, self.joined):
            return self.put(one, given)
        members = getattr(one, self.members)
        if not isinstance(given, tuple) or len(given) != len(members):
            raise ParameterError(
                f"lengthscale must be a tuple of those of {len(members)} members, None of one that stays; "
                f"got {shown(given)}"
            )
        changed = tuple(map(self.change, members, given))
        return replace(one, **{self.members: changed})  # type: ignore[type-var]


def _own(kernel: Kernel) -> Any:
    return np.asarray(kernel.lengthscale, np.float64) if isinstance(kernel, Stationary) else None


def _put(kernel: Kernel, given: Any) -> Kernel:
    if not isinstance(kernel, Stationary):
        raise ParameterError(f"lengthscale must be None for {shown(kernel)}, which has none here; got {shown(given)}")
    return replace(kernel, lengthscale=given)  # type: ignore[type-var]


_KERNELS = Walk((Scaled,), "kernel", (Sum, Product), "kernels", _own, _put)
lengthscales_of = _KERNELS.numbers
with_lengthscales = _KERNELS.change
