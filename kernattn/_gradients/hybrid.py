"""How cotangents flow back through attention that is exact on a pattern, or a window, and by features elsewhere."""

from collections.abc import Callable
from typing import Any, NamedTuple

from kernattn._arrays.namespaces import Array, namespace, zeros
from kernattn._gradients.maps import MapGradients, check_differentiable
from kernattn._gradients.recorded import like, of_map, pair, run_with_pullback
from kernattn._maps.spec import MapSpec
from kernattn._runtime.checks import shown
from kernattn._sums.cotangents import sum_onto
from kernattn._sums.peaked import PeakedSum
from kernattn.attention import WindowState
from kernattn.attention._mechanisms.hybrid import within_segments
from kernattn.attention._mechanisms.scatterbrain import prepared_on
from kernattn.attention._mechanisms.window import prepare_window
from kernattn.attention._mechanisms.window_states import put_in_order
from kernattn.errors import DTypeError, ParameterError
from kernattn.features import FeatureMap


class ScatterBrainGradients(NamedTuple):
    """Of `scatterbrain_attention`."""

    q: Array
    k: Array
    v: Array
    phi: MapGradients
    near_bias: Array | None


class WindowGradients(NamedTuple):
    """Of `window_attention`."""

    q: Array
    k: Array
    v: Array
    phi: MapGradients
    near_bias: Array | None
    state: WindowState | None


def scatterbrain(phi: FeatureMap, backend: str | None, **arguments: Any) -> tuple[Array, Callable[[Any], Any]]:
    """Return the outputs on a pattern, and their pullback."""
    check_differentiable(phi)
    given, runs = prepared_on(phi=phi, **arguments)
    if given is None:
        raise ParameterError("vjp takes patterns whose rows see one stretch of keys each; PyTorch takes others")
    (out, *_), pulled = run_with_pullback("hybrid", _of_specs(within_segments(given, runs)), backend, phi)

    def pullback(cotangent: Any) -> ScatterBrainGradients:
        grads = pulled(like("the cotangent", cotangent, out), None)
        sides = {name: arguments[name] for name in "qk"}
        return ScatterBrainGradients(v=grads["v"], near_bias=grads["near_bias"], **of_map(phi, sides, grads))

    return out, pullback


def window(
    phi: FeatureMap, backend: str | None, **arguments: Any
) -> tuple[tuple[Array, WindowState], Callable[[Any], Any]]:
    """Return the outputs with a window, the state, and their pullback."""
    check_differentiable(phi)
    given, arrangement = prepare_window(phi=phi, **arguments)
    given = _of_specs(within_segments(given, arrangement.runs))
    (out, _, sums, *_), pulled = run_with_pullback("hybrid", given, backend, phi)
    after = arrangement.state_after(given, sums, phi.fingerprint)
    mask, before, size = arrangement.mask, arguments["state"], arrangement.window

    def pullback(cotangent: Any) -> WindowGradients:
        g, of_after = pair(cotangent, "the state")
        g = like("the cotangent of the outputs", g, out)
        xp = namespace(g=g)
        g = g if mask is None else xp.where(mask[..., None], g, xp.zeros_like(g))
        g = g if arrangement.order is None else put_in_order(g, arrangement.order)
        of_sums, of_rows = _apart(of_after, after)
        grads = pulled(g, of_sums)
        sides, of_state = {}, {}
        for name in "kv":
            cotangent, x = grads[name], arguments[name]
            cotangent = cotangent if name == "v" else cotangent.x
            if of_rows is not None:
                cotangent = _with_last(cotangent, of_rows[name], after.present)
            cotangent = _put_back(cotangent, arrangement.whole)
            if before is not None:
                of_state[name] = sum_onto(xp, cotangent[..., :size, :], tuple(getattr(before, name).shape))
                cotangent = cotangent[..., size:, :]
            sides[name] = sum_onto(xp, cotangent, tuple(x.shape))
        of_q = sum_onto(xp, _put_back(grads["q"].x, arrangement.order), tuple(arguments["q"].shape))
        grads = grads | {"q": grads["q"]._replace(x=of_q), "k": grads["k"]._replace(x=sides["k"])}
        state = None if before is None else before._replace(s=grads["state"].s, z=grads["state"].z, **of_state)
        rows = of_map(phi, {"q": arguments["q"], "k": arguments["k"]}, grads)
        return WindowGradients(v=sides["v"], near_bias=grads["near_bias"], state=state, **rows)

    return (arrangement.finish(out), after), pullback


def _of_specs(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments of the op, which must have the specs of maps."""
    if not all(isinstance(spec, MapSpec) for spec in given[3:5]):
        raise ParameterError("phi must not be learnt by a number that scales rows, in vjp of a part that is exact")
    return given


def _apart(cotangent: Any, state: WindowState) -> tuple[PeakedSum | None, dict[str, Array] | None]:
    """Return the cotangents of a state's sums beside their peak, and those of its tokens by name."""
    if cotangent is None:
        return None, None
    if not isinstance(cotangent, WindowState):
        raise DTypeError(f"the cotangent of a state must be a WindowState; got {shown(cotangent)}")
    s, z, k, v = (like(f"the state's {name}", getattr(cotangent, name), getattr(state, name)) for name in "szkv")
    return PeakedSum(s, z, state.peak), {"k": k, "v": v}


def _put_back(cotangent: Array, order: Array | None) -> Array:
    """Return cotangents of rows that were put into an order, as the rows were given."""
    return cotangent if order is None else put_in_order(cotangent, namespace(order=order).argsort(order, axis=-1))


def _with_last(cotangent: Array, of_last: Array, present: Array) -> Array:
    """Return cotangents of rows (..., l, c) with those that the last rows have in a state, where they are present."""
    xp = namespace(cotangent=cotangent)
    length, window = cotangent.shape[-2], of_last.shape[-2]
    of_last = xp.where(present[..., None], of_last, xp.zeros_like(of_last))
    of_last = of_last[..., max(0, window - length) :, :]
    missing = length - of_last.shape[-2]
    rest = zeros(xp, (*of_last.shape[:-2], missing, of_last.shape[-1]), of_last.dtype, of_last)
    return cotangent + sum_onto(xp, xp.concat([rest, of_last], axis=-2), tuple(cotangent.shape))
