"""What a map has to be so that cotangents pass through it, and the cotangents of its numbers."""

from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, constant, namespace, zeros
from kernattn._maps.kinds import KINDS
from kernattn._maps.learnt import NUMBERS
from kernattn._runtime.checks import instance_of
from kernattn._sums.cotangents import MapCotangent
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap, LearntMap
from kernattn.features._learnt import beside, kernel_folds, kernel_ratio


class MapGradients(NamedTuple):
    """Cotangents of a map's numbers, None where they were not given to `with_numbers`."""

    omega: Array | None = None  # (D, d)
    offset: Array | None = None  # (M,)
    row_weights: Array | None = None  # (d,)
    lengthscale: Any = None  # () or (d,), of the kernel's, all that was drawn held; a tuple of those of members
    scale: Array | None = None  # (), of the softmax kernel's, likewise


def check_differentiable(phi: Any) -> None:
    """Raise unless cotangents pass through a map."""
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


def learns(phi: FeatureMap) -> bool:
    """Are numbers learnt whose cotangents an op returns?"""
    return isinstance(phi, LearntMap) and any(name in NUMBERS for name in phi.numbers)


def rows_cotangent(phi: FeatureMap, x: Array, dx: Array) -> Array:
    """Return the cotangent of rows x from that of the rows that the map's spec is for."""
    if not isinstance(phi, LearntMap) or kernel_folds(phi):
        return dx
    xp = namespace(x=x)
    wide = accumulation_dtype(xp, x)
    return xp.astype(xp.astype(dx, wide, copy=False) * beside(x, kernel_ratio(phi)), x.dtype)


def map_gradients(phi: FeatureMap, *sides: tuple[Array, MapCotangent]) -> MapGradients:
    r"""Return the cotangents of a map's numbers from those of rows, each beside its rows.

    Inputs are divided by the lengthscale l, and multiplied by the root of the scale s:
    :math:`dl_i = -\sum x_i dx_i / l_i` and :math:`ds = \sum x^T dx / 2s`.
    """
    if not isinstance(phi, LearntMap):
        return MapGradients()
    gradients: dict[str, Array] = {}
    x = sides[0][0]
    xp = namespace(x=x)
    wide = accumulation_dtype(xp, x)
    folded = kernel_ratio(phi) if kernel_folds(phi) else None
    for name, number in phi.numbers.items():
        number = beside(x, number)
        if name in NUMBERS:
            parts = [part for _, cotangent in sides if (part := getattr(cotangent, name)) is not None]
            total = sum(parts[1:], parts[0]) if parts else zeros(xp, tuple(number.shape), wide, x)
            if folded is not None and name != "offset":
                total = total * beside(x, folded) ** (1 if name == "omega" else 2)
            gradients[name] = total
            continue
        total = sum(sum_products(row, cotangent) for row, cotangent in sides)
        if name == "scale":
            gradients[name] = xp.sum(total) / (2 * number)
        else:
            total = -total / number
            gradients[name] = xp.sum(total) if number.ndim == 0 else total
    return MapGradients(**gradients)


def sum_products(x: Array, cotangent: MapCotangent) -> Array:
    """Return sum x_i dx_i over rows, (d,); what has no cotangent may be anything."""
    xp = namespace(x=x)
    x, dx = (xp.astype(y, accumulation_dtype(xp, x), copy=False) for y in (x, cotangent.x))
    products = xp.where(dx == 0, xp.zeros_like(x), x * dx)
    return xp.sum(xp.reshape(products, (-1, x.shape[-1])), axis=0)


def current_numbers(phi: FeatureMap, names: tuple[str, ...], like: Array) -> dict[str, Array]:
    """Return the numbers with these names that a map has, as arrays beside others."""
    xp, kernel = namespace(like=like), getattr(phi, "kernel", None)
    values: dict[str, Any] = {}
    for name in names:
        if name in NUMBERS:
            values[name] = getattr(phi.spec, name, None)
        elif name == "scale":
            values[name] = getattr(kernel, "scale", None) or phi.dim**-0.5 if phi.dim else None
        else:
            values[name] = getattr(kernel, "lengthscale", None)
    wide = accumulation_dtype(xp, like)
    return {
        name: value if value is None else constant(xp, np.asarray(value, np.float64), wide, like)
        for name, value in values.items()
    }
