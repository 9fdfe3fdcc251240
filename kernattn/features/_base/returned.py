"""What a map's own method returns: checked, for anybody may write a map, and in the dtype in which sums run."""

from __future__ import annotations

from typing import Any

from kernattn._arrays.namespaces import Array, accumulation_dtype, check_floating, namespace
from kernattn._arrays.shapes import broadcast
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.checks import shown
from kernattn.errors import DTypeError, ShapeError


def scaled_features(phi: Any, x: Array, key: bool) -> ScaledFeatures:
    """Return the features of queries or keys x (..., n, d), which the map is given in the dtype in which sums run."""
    xp, method = namespace(x=x), "scaled_key" if key else "scaled_query"
    wide = accumulation_dtype(xp, x)
    features = getattr(phi, method)(xp.astype(x, wide, copy=False))
    whose = f"{method} of {type(phi).__name__}"
    if not isinstance(features, tuple) or len(features) != 2:
        raise DTypeError(f"{whose} must return ScaledFeatures, values and log scales; got {shown(features)}")
    parts = {f"the {part} of {whose}": array for part, array in zip(ScaledFeatures._fields, features, strict=True)}
    namespace(x=x, **parts)
    for name, array in parts.items():
        check_floating(name, array)
    _check_shapes(whose, tuple(x.shape[:-1]), phi.num_features_of(x.shape[-1]), *features)
    return ScaledFeatures(*(xp.astype(array, wide, copy=False) for array in features))


def _check_shapes(whose: str, lead: tuple[int, ...], number: int, values: Array, log_scale: Array) -> None:
    """Raise unless one of them has so many columns, the other that or one, and both together the rows of x."""
    shapes = tuple(values.shape), tuple(log_scale.shape)
    try:
        fits = all(shapes) and tuple(broadcast(values=shapes[0][:-1], log_scale=shapes[1][:-1])) == lead
    except ShapeError:
        fits = False
    columns = [shape[-1] for shape in shapes if shape]
    if not fits or any(size not in (1, number) for size in columns) or max(columns) != number:
        rows = "".join(f"{size}, " for size in lead)
        raise ShapeError(
            f"{whose} must return values ({rows}{number}) and log scales ({rows}1), or values ({rows}1) and "
            f"log scales ({rows}{number}), as num_features_of says; got shapes {shapes[0]} and {shapes[1]}"
        )
