"""Lengthscales of the kernel of a map, or of the members of one, and the same draw with others."""

from dataclasses import replace
from typing import Any

from kernattn._runtime.checks import shown
from kernattn.errors import ParameterError
from kernattn.features._base.map import FeatureMap
from kernattn.features._composite import Concatenated, ScaledMap, TensorProduct, Transformed
from kernattn.features._hilbert.map import Hilbert
from kernattn.features._nystrom.map import Nystrom
from kernattn.features._spectral.map import RandomFeatureMap
from kernattn.kernels import Stationary
from kernattn.kernels import _lengthscales as of_kernels


def has_own(phi: FeatureMap) -> bool:
    """Say whether a map's rows are divided by a lengthscale, and all else was drawn."""
    return isinstance(phi, RandomFeatureMap) and isinstance(phi.kernel, Stationary)


def _by_kernel(phi: FeatureMap) -> bool:
    return has_own(phi) or (isinstance(phi, Nystrom | Hilbert) and phi.kernel is not None)


def _own(phi: FeatureMap) -> Any:
    return of_kernels.lengthscales_of(phi.kernel) if _by_kernel(phi) else None  # type: ignore[attr-defined]


def _put(phi: FeatureMap, given: Any) -> FeatureMap:
    if not _by_kernel(phi):
        raise ParameterError(f"lengthscale must be None for {shown(phi)}, which has none; got {shown(given)}")
    kernel = of_kernels.with_lengthscales(phi.kernel, given)  # type: ignore[attr-defined]
    return phi._of_kernel(kernel) if isinstance(phi, Nystrom) else replace(phi, kernel=kernel)  # type: ignore[type-var]


_MAPS = of_kernels.Walk((ScaledMap, Transformed), "inner", (Concatenated, TensorProduct), "maps", _own, _put)
lengthscales_of = _MAPS.numbers
with_lengthscales = _MAPS.change
