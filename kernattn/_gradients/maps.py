"""What a map has to be so that cotangents pass through it, and the cotangents of its numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, constant, namespace, zeros
from kernattn._maps.chains import Chains
from kernattn._maps.kinds import KINDS
from kernattn._maps.spec import MapSpec
from kernattn._runtime.checks import instance_of, one_of, shown
from kernattn._sums.cotangents import MapCotangent
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap, RandomFeatureMap
from kernattn.kernels import Softmax
from kernattn.kernels._stationary import Stationary


class MapGradients(NamedTuple):
    """Cotangents of a map's numbers, None where they were not asked for."""

    omega: Array | None = None  # (D, d), of `phi.spec.omega`
    offset: Array | None = None  # (M,), of `phi.spec.offset`
    row_weights: Array | None = None  # (d,), of `phi.spec.row_weights`
    lengthscale: Array | None = None  # () or (d,), of the kernel's, all that was drawn held
    scale: Array | None = None  # (), of the softmax kernel's, likewise


NUMBERS = ("omega", "offset", "row_weights")


def checked_map(phi: Any, learn: Any) -> tuple[str, ...]:
    """Return the names in `learn`; raise unless cotangents pass through the map, and it has these numbers."""
    instance_of("phi", phi, FeatureMap)
    specs = phi.query_spec, phi.key_spec
    if None in specs:
        raise ParameterError(
            f"phi must be a map with a spec for vjp; {type(phi).__name__} computes its features. PyTorch and JAX "
            "differentiate attention with any map themselves"
        )
    kinds = [KINDS[spec.kind] for spec in specs]
    if kinds[0].per_feature != kinds[1].per_feature:
        raise ParameterError(f"queries and keys must have log scales alike; got kinds {kinds[0].name}, {kinds[1].name}")
    for kind in kinds:
        if kind.pull is None:
            raise ParameterError(f"kind {kind.name!r} has no derivative in kernattn._maps.kinds")
    if isinstance(learn, str) or not isinstance(learn, tuple | list):
        raise ParameterError(f"learn must be a tuple of names; got {shown(learn)}")
    names = tuple(one_of("learn", name, MapGradients._fields) for name in learn)
    for name in names:
        if why := _lacks(phi, name):
            raise ParameterError(f"learn={name!r} needs {why}; got {shown(phi)}")
    return names


def _lacks(phi: FeatureMap, name: str) -> str | None:
    """Return what a map would have to have so that its number of that name could be learnt."""
    if name in NUMBERS:
        spec = phi.spec
        if spec is None or getattr(spec, name) is None:
            return f"a map with one spec that has {name}"
        return "frequencies that are a matrix, not chains of Hadamard transforms" * isinstance(spec.omega, Chains)
    kernel = getattr(phi, "kernel", None) if isinstance(phi, RandomFeatureMap) else None
    wanted: type = Softmax if name == "scale" else Stationary
    kind = "the softmax kernel" if name == "scale" else "a kernel with a lengthscale"
    return None if isinstance(kernel, wanted) else f"a random feature map of {kind}"


def learnt(names: tuple[str, ...]) -> bool:
    """Are any of the names those of numbers that an op returns?"""
    return any(name in NUMBERS for name in names)


def map_gradients(phi: FeatureMap, names: tuple[str, ...], *sides: tuple[Array, MapCotangent]) -> MapGradients:
    r"""Return the cotangents of the numbers with these names from those of rows, each beside its rows.

    Inputs are divided by the lengthscale l, and multiplied by the root of the scale s:
    :math:`dl_i = -\sum x_i dx_i / l_i` and :math:`ds = \sum x^T dx / 2s`.
    """
    found: dict[str, Array] = {}
    x = sides[0][0]
    xp = namespace(x=x)
    for name in names:
        if name in NUMBERS:
            parts = [part for _, cotangent in sides if (part := getattr(cotangent, name)) is not None]
            found[name] = sum(parts[1:], parts[0]) if parts else _nothing(phi, name, x)
            continue
        total = sum(_products(*side) for side in sides)
        scale = phi.kernel.input_scale(x.shape[-1])  # type: ignore[attr-defined]
        if name == "scale":
            found[name] = xp.sum(total) * float(0.5 / scale[0] ** 2)
        else:
            total = -total * constant(xp, scale, total.dtype, total)
            one = np.ndim(phi.kernel.lengthscale) == 0  # type: ignore[attr-defined]
            found[name] = xp.sum(total) if one else total
    return MapGradients(**found)


def _nothing(phi: FeatureMap, name: str, x: Array) -> Array:
    """Return zeros for a number that no side depends on: row_weights cancel between the features of a query."""
    xp = namespace(x=x)
    return zeros(xp, getattr(phi.spec, name).shape, accumulation_dtype(xp, x), x)


def _products(x: Array, cotangent: MapCotangent) -> Array:
    """Return sum x_i dx_i over rows, (d,); what has no cotangent may be anything."""
    xp = namespace(x=x)
    x, dx = (xp.astype(y, accumulation_dtype(xp, x), copy=False) for y in (x, cotangent.x))
    products = xp.where(dx == 0, xp.zeros_like(x), x * dx)
    return xp.sum(xp.reshape(products, (-1, x.shape[-1])), axis=0)


def specs_of(phi: FeatureMap) -> tuple[MapSpec, MapSpec]:
    """Return the specs of queries and of keys."""
    return spec_of(phi, False), spec_of(phi, True)


def spec_of(phi: FeatureMap, key: bool) -> MapSpec:
    """Return the spec of one side of a map that `checked_map` has passed."""
    spec = phi.key_spec if key else phi.query_spec
    assert spec is not None
    return spec
