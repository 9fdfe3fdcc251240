"""Lengthscales of the kernel of a map, or of the members of one, and the same draw with others."""

from dataclasses import replace
from typing import Any

from kernattn._runtime.checks import shown
from kernattn.errors import ParameterError
from kernattn.features._base.map import FeatureMap
from kernattn.features._composite import Concatenated, ScaledMap, TensorProduct
from kernattn.features._hilbert.map import Hilbert
from kernattn.features._nystrom.map import Nystrom
from kernattn.features._spectral.map import RandomFeatureMap
from kernattn.kernels import _lengthscales as of_kernels
from kernattn.kernels._lengthscales import each_of
from kernattn.kernels._stationary import Stationary


def lengthscales_of(phi: FeatureMap) -> Any:
    """Return an array () or (d,), a tuple of those of members, or None where there is none."""
    if isinstance(phi, ScaledMap):
        return lengthscales_of(phi.inner)
    if isinstance(phi, Concatenated | TensorProduct):
        return tuple(map(lengthscales_of, phi.maps))
    if isinstance(phi, Nystrom | Hilbert) and phi.kernel is not None:
        return of_kernels.lengthscales_of(phi.kernel)
    return of_kernels.lengthscales_of(phi.kernel) if has_own(phi) else None  # type: ignore[attr-defined]


def has_own(phi: FeatureMap) -> bool:
    """Say whether a map's rows are divided by a lengthscale, and all else was drawn."""
    return isinstance(phi, RandomFeatureMap) and isinstance(phi.kernel, Stationary)


def with_lengthscales(phi: FeatureMap, given: Any) -> FeatureMap:
    """Return the same draw, landmarks or basis with other lengthscales, as `lengthscales_of` has them."""
    if given is None:
        return phi
    if isinstance(phi, ScaledMap):
        return replace(phi, inner=with_lengthscales(phi.inner, given))
    if isinstance(phi, Concatenated | TensorProduct):
        return replace(phi, maps=each_of(phi.maps, given, with_lengthscales))
    if not (has_own(phi) or (isinstance(phi, Nystrom | Hilbert) and phi.kernel is not None)):
        raise ParameterError(f"lengthscale must be None for {shown(phi)}, which has none; got {shown(given)}")
    kernel = of_kernels.with_lengthscales(phi.kernel, given)  # type: ignore[attr-defined]
    return phi._of_kernel(kernel) if isinstance(phi, Nystrom) else replace(phi, kernel=kernel)  # type: ignore[type-var]
