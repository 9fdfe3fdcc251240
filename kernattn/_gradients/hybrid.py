"""How cotangents flow back through attention that is exact on a pattern, or a window, and by features elsewhere."""

from collections.abc import Callable
from typing import Any, NamedTuple

from kernattn._arrays.namespaces import Array, namespace, zeros
from kernattn._gradients.maps import MapGradients, check_differentiable, map_gradients
from kernattn._gradients.recorded import like, pair, run_with_pullback
from kernattn._maps.spec import MapSpec
from kernattn._runtime.checks import shown
from kernattn._sums.cotangents import MapCotangent, sum_onto
from kernattn._sums.peaked import PeakedSum
from kernattn.attention import WindowState
from kernattn.attention._mechanisms.hybrid import packed_arguments, within_segments
from kernattn.attention._mechanisms.scatterbrain import prepared_on
from kernattn.attention._mechanisms.window import prepare_window
from kernattn.attention._mechanisms.window_states import put_in_order
from kernattn.errors import DTypeError, ParameterError
from kernattn.features import FeatureMap, LearntMap
from kernattn.features._learnt import beside, part_from_scale, times


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
    given = _of_specs(within_segments(given, runs))
    (out, *_), pulled = _run(given, backend, phi)

    def pullback(cotangent: Any) -> ScatterBrainGradients:
        grads = pulled(like("the cotangent", cotangent, out), None)
        return ScatterBrainGradients(**{name: grads[name] for name in ScatterBrainGradients._fields})

    return out, pullback


def packed(phi: FeatureMap, backend: str | None, *rows: Any) -> tuple[Array, Callable[[Any], dict[str, Any]]]:
    """Return the outputs of packed sequences, each of them its own, and what makes their cotangents by name."""
    check_differentiable(phi)
    q, k, v, key_mask, segment_ids = rows
    (out, *_), pulled = _run(packed_arguments(q, k, v, phi, key_mask, segment_ids), backend, phi)

    def pullback(cotangent: Any) -> dict[str, Any]:
        grads = pulled(like("the cotangent", cotangent, out), None)
        return {name: grads[name] for name in ("q", "k", "v", "phi")}

    return out, pullback


def window(
    phi: FeatureMap, backend: str | None, **arguments: Any
) -> tuple[tuple[Array, WindowState], Callable[[Any], Any]]:
    """Return the outputs with a window, the state, and their pullback."""
    check_differentiable(phi)
    given, arrangement = prepare_window(phi=phi, **arguments)
    given = within_segments(given, arrangement.runs)
    (out, _, sums, *_), pulled = _run(given, backend, phi)
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
            if of_rows is not None:
                cotangent = _with_last(cotangent, of_rows[name], after.present)
            cotangent = _put_back(cotangent, arrangement.whole)
            if before is not None:
                of_state[name] = sum_onto(xp, cotangent[..., :size, :], tuple(getattr(before, name).shape))
                cotangent = cotangent[..., size:, :]
            sides[name] = sum_onto(xp, cotangent, tuple(x.shape))
        of_q = sum_onto(xp, _put_back(grads["q"], arrangement.order), tuple(arguments["q"].shape))
        state = None if before is None else before._replace(s=grads["state"].s, z=grads["state"].z, **of_state)
        return WindowGradients(of_q, sides["k"], sides["v"], grads["phi"], grads["near_bias"], state)

    return (arrangement.finish(out), after), pullback


def _run(
    given: tuple[Any, ...], backend: str | None, phi: FeatureMap
) -> tuple[tuple[Any, ...], Callable[..., dict[str, Any]]]:
    """Return the outputs of the op, and what makes cotangents by name: those of rows are arrays, and phi has its own.

    Exact scores read the rows beside the features. So the lengthscale, which features alone have, gets its cotangent
    from that of the frequencies; and the scale, by which all rows of the op were multiplied, from those of the rows.
    """
    of_features = isinstance(phi, LearntMap) and "lengthscale" in phi.numbers
    outputs, pulled = run_with_pullback("hybrid", _of_specs(given), backend, phi, learn=of_features)
    rest, ratio = part_from_scale(phi)

    def pull_back(*cotangents: Any) -> dict[str, Any]:
        grads = pulled(*cotangents)
        sides = [(x, grads[name]) for name, x in zip("qk", given[:2], strict=True)]
        numbers = map_gradients(rest, *sides)
        if of_features:
            numbers = numbers._replace(lengthscale=_of_lengthscale(rest, sides))
        if ratio is not None:
            numbers = numbers._replace(scale=map_gradients(phi, *sides).scale)
        rows = {name: grads[name].x if ratio is None else times(grads[name].x, ratio) for name in "qk"}
        return grads | rows | {"phi": numbers}

    return outputs, pull_back


def _of_lengthscale(phi: Any, sides: list[tuple[Array, MapCotangent]]) -> Array:
    r"""Return :math:`dl_i = -(\sum_j \omega_{ji} d\omega_{ji} + 2 w_i dw_i) / l_i`, where w are the weights of rows."""
    x = sides[0][0]
    xp, number, total = namespace(x=x), beside(x, phi.numbers["lengthscale"]), 0.0
    for name, power in (("omega", 1), ("row_weights", 2)):
        for _, cotangent in sides:
            if (part := getattr(cotangent, name)) is not None:
                total = total + power * xp.sum(
                    xp.reshape(part * beside(x, getattr(phi.spec, name)), (-1, x.shape[-1])), axis=0
                )
    total = -total / number
    return xp.sum(total) if number.ndim == 0 else total


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
