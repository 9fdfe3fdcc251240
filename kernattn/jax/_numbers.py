"""What is learnt of a map: its spec's numbers as arrays of JAX, its kernel's by scaling the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import SimpleNamespace
from typing import Any, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, check_floating
from kernattn._gradients.maps import NUMBERS, checked_map
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.checks import shown
from kernattn._runtime.random import RNG
from kernattn.errors import DTypeError, ParameterError, ShapeError
from kernattn.features import FeatureMap
from kernattn.ops.features import scaled


class Numbers(NamedTuple):
    """What is learnt of a map."""

    names: tuple[str, ...]  # of numbers of its spec
    values: tuple[Array, ...]
    lengthscale: Array | None
    scale: Array | None

    def scaled(self, phi: FeatureMap, x: Array) -> Array:
        """Return rows of which the map makes the features that those of its kernel's new parameters have."""
        if self.lengthscale is None and self.scale is None:
            return x
        dtype = accumulation_dtype(jnp, x)
        factor = 1 / jnp.asarray(phi.kernel.input_scale(x.shape[-1]), dtype)  # type: ignore[attr-defined]
        if self.lengthscale is not None:
            factor = factor / self.lengthscale.astype(dtype)
        if self.scale is not None:
            factor = factor * jnp.sqrt(self.scale.astype(dtype))
        return (x.astype(dtype) * factor).astype(x.dtype)

    def traced(self, phi: FeatureMap) -> FeatureMap:
        """Return the map with these numbers, for array operations."""
        return Learnt(phi, self.names, self.values) if self.names else phi


def numbers_of(phi: FeatureMap, learn: Any) -> Numbers:
    """Return what is learnt, which must be arrays of JAX by the names of numbers that the map has."""
    if learn is None:
        return Numbers((), (), None, None)
    if not isinstance(learn, Mapping):
        raise ParameterError(f"learn must be None or a mapping of names to arrays; got {shown(learn)}")
    checked_map(phi, tuple(learn))
    for name, value in learn.items():
        if not isinstance(value, jax.Array):
            raise DTypeError(f"learn[{name!r}] must be an array of JAX; got {type(value).__name__}")
        check_floating(f"learn[{name!r}]", value)
        wanted = _shape(phi, name)
        if tuple(value.shape) != wanted:
            raise ShapeError(f"learn[{name!r}] must have the shape {wanted} that phi's has; got {tuple(value.shape)}")
    names = tuple(name for name in learn if name in NUMBERS)
    return Numbers(names, tuple(learn[name] for name in names), learn.get("lengthscale"), learn.get("scale"))


def _shape(phi: FeatureMap, name: str) -> tuple[int, ...]:
    if name == "scale":
        return ()
    owner = phi.kernel if name == "lengthscale" else phi.spec  # type: ignore[attr-defined]
    return tuple(np.shape(getattr(owner, name)))


@dataclass(frozen=True, eq=False, repr=False)
class Learnt(FeatureMap):
    """A map some of whose numbers are traced: its features are computed, by the formulas of its spec."""

    phi: FeatureMap
    names: tuple[str, ...]
    values: tuple[Array, ...]

    spec = None

    def __post_init__(self) -> None:
        """Take the fingerprint of the map that is learnt: that of traced numbers is not known."""
        vars(self)["fingerprint"] = self.phi.fingerprint

    @property
    def dim(self) -> int | None:
        """Input dimension d; None where any is taken."""
        return self.phi.dim

    def num_features_of(self, dim: int) -> int:
        """Return M, the number of features of an input of dimension `dim`."""
        return self.phi.num_features_of(dim)

    def scaled_query(self, x: Array) -> ScaledFeatures:
        """Return the features of x (..., n, d), log scale apart, in the accumulation dtype."""
        spec: Any = self.phi.spec
        numbers = {field.name: getattr(spec, field.name) for field in fields(spec)}
        numbers |= zip(self.names, self.values, strict=True)
        plain: Any = SimpleNamespace(**numbers, log_amplitude=spec.log_amplitude, check_dtype=lambda name, x: None)
        return scaled(x, plain)

    scaled_key = scaled_query

    def redraw(self, rng: RNG = None) -> Self:
        """Return the map itself: what is learnt is not drawn."""
        return self
