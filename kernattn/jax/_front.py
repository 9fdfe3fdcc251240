"""What the public functions share: which implementation takes a call, and arrays brought to one number of axes."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from kernattn._arrays.bridge import Kept, library_of
from kernattn._arrays.namespaces import Array
from kernattn._gradients.maps import checked_map, spec_of
from kernattn._maps.spec import MapSpec
from kernattn._runtime.checks import one_of
from kernattn._sums.peaked import PeakedSum
from kernattn.errors import BackendUnavailable, DTypeError, ParameterError
from kernattn.features import FeatureMap
from kernattn.ops.dispatch import missing


def check_jax(**arrays: Any) -> None:
    """Raise unless what is given is of JAX."""
    for name, array in arrays.items():
        if array is not None and not isinstance(array, jax.Array):
            raise DTypeError(
                f"{name} must be an array of JAX, as jax.numpy.asarray makes it; "
                f"got {type(array).__module__}.{type(array).__name__}"
            )


def compiles(backend: Any, phi: FeatureMap | None, *given: Any) -> bool:
    """Do compiled loops take the call, or the reference? Raise where the loops that were asked for cannot."""
    if backend is not None and one_of("backend", backend, ("reference", "cpu", "gpu")) == "reference":
        return False
    why = "kernattn.jax has no such backend" if backend == "gpu" else _why_not(phi, given)
    if why is not None and backend is not None:
        raise BackendUnavailable(f"backend {backend!r} cannot take this call: {why}; backend='reference' takes it")
    return why is None


def _why_not(phi: FeatureMap | None, given: tuple[Any, ...]) -> str | None:
    """Return what keeps a call from the compiled loops."""
    if (why := missing("cpu")) is not None:
        return why
    if phi is not None:
        try:
            checked_map(phi, ())
        except ParameterError as error:
            return str(error)
    for array in jax.tree.leaves(given):
        if isinstance(array, jax.core.Tracer):
            if (platform := jax.default_backend()) != "cpu":
                return f"JAX compiles for {platform}"
        elif (library := library_of(array)) is not None:
            try:
                library.check(array)
            except Kept as kept:
                return str(kept)
    return None


def specs_of(phi: FeatureMap) -> tuple[MapSpec, MapSpec]:
    """Return the specs of queries and keys of a map that compiled loops take."""
    return spec_of(phi, False), spec_of(phi, True)


def levelled(*pairs: tuple[Any, int]) -> list[Any]:
    """Return arrays, each beside the number of its own axes, with equally many leading axes; None stays None."""
    most = max(array.ndim - axes for array, axes in pairs if array is not None)
    return [x if x is None else _shaped(x, (1,) * (most + axes - x.ndim) + x.shape) for x, axes in pairs]


def shaped(sums: PeakedSum, lead: tuple[int, ...]) -> PeakedSum:
    """Return sums with these leading axes."""
    return PeakedSum(*(_shaped(x, lead + x.shape[x.ndim - axes :]) for x, axes in zip(sums, (2, 1, 1), strict=True)))


def _shaped(x: Any, shape: tuple[int, ...]) -> Any:
    return x if x.shape == shape else x.reshape(shape)


def leading(axes: int, *arrays: Array) -> tuple[int, ...]:
    """Return the leading axes of arrays together."""
    return np.broadcast_shapes(*(x.shape[: x.ndim - axes] for x in arrays))
