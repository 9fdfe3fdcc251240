"""Ops and their pullbacks by the records, and what cotangents must be like."""

from collections.abc import Callable
from typing import Any

from kernattn._arrays.namespaces import Array, dtype_name, namespace
from kernattn._gradients.maps import learns, map_gradients, rows_cotangent
from kernattn._runtime.checks import shown
from kernattn._sums.peaked import LinearState, PeakedSum
from kernattn.errors import DTypeError, ParameterError, ShapeError
from kernattn.features import FeatureMap
from kernattn.ops.dispatch import Op
from kernattn.ops.records import RECORDS


def run_with_pullback(
    name: str, given: tuple[Any, ...], backend: str | None, phi: FeatureMap | None = None, *, learn: bool = False
) -> tuple[tuple[Any, ...], Callable[..., dict[str, Any]]]:
    """Return the outputs of an op, and what makes cotangents of its inputs, by name, from those of its outputs.

    Those of a spec's numbers are among them where a map's are learnt, or where `learn` asks for them.
    """
    record = RECORDS[name]

    def way(op: Op, like: Array) -> Callable[..., Any]:
        return op.implementation(like, backend)

    outputs = record.forward(way, given)
    kept = record.kept_of(outputs)
    learn = learn or (phi is not None and learns(phi))

    def pull_back(*cotangents: Any) -> dict[str, Any]:
        return record.by_input(record.backward(way, learn, given, kept, cotangents))

    return outputs, pull_back


def of_map(phi: FeatureMap, sides: dict[str, Array], pulled: dict[str, Any]) -> dict[str, Any]:
    """Return cotangents of rows that went through a map, by name, and those of the map's numbers."""
    cotangents = {name: pulled[name]._replace(x=rows_cotangent(phi, x, pulled[name].x)) for name, x in sides.items()}
    return {
        **{name: cotangent.x for name, cotangent in cotangents.items()},
        "phi": map_gradients(phi, *((x, cotangents[name]) for name, x in sides.items())),
    }


def pair(cotangent: Any, second: str) -> tuple[Any, Any]:
    """Return the cotangents of outputs and of what comes with them."""
    if not isinstance(cotangent, tuple) or len(cotangent) != 2:
        raise ParameterError(
            f"the cotangent must be a pair, of the outputs and of {second}, None where there is none; "
            f"got {shown(cotangent)}"
        )
    return cotangent


def like(what: str, cotangent: Any, result: Array) -> Array:
    """Return a cotangent, zeros where it is None; it must be an array like the result."""
    xp = namespace(result=result)
    if cotangent is None:
        return xp.zeros_like(result)
    namespace(result=result, cotangent=cotangent)
    if tuple(cotangent.shape) != tuple(result.shape):
        raise ShapeError(f"{what} must have the result's shape {tuple(result.shape)}; got {tuple(cotangent.shape)}")
    if dtype_name(cotangent) != dtype_name(result):
        raise DTypeError(f"{what} must have the result's dtype {dtype_name(result)}; got {dtype_name(cotangent)}")
    return cotangent


def like_state(cotangent: Any, state: LinearState) -> PeakedSum | None:
    """Return the cotangents of a state's sums beside its peak; those of peak and draw are not looked at."""
    if cotangent is None:
        return None
    if not isinstance(cotangent, tuple) or len(cotangent) != len(state):
        raise DTypeError(f"the cotangent of a state must be a LinearState; got {shown(cotangent)}")
    s, z = (like(f"the state's {name}", x, y) for name, x, y in zip("sz", cotangent[:2], state[:2], strict=True))
    return PeakedSum(s, z, state.peak)
