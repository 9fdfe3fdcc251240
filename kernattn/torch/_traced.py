"""The functions of attention where `torch.compile` traces them: each is an op of the graph."""

from operator import index
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import UnsupportedFakeTensorException

from kernattn import attention
from kernattn._arrays.graphs import in_a_graph
from kernattn._maps.learnt import NUMBERS
from kernattn._plans.plan import CAUSAL
from kernattn._runtime.checks import boolean
from kernattn.attention import LinearState, WindowState
from kernattn.attention.patterns import Pattern
from kernattn.errors import DTypeError, KernattnError, ParameterError, ShapeError, StateMismatchError
from kernattn.features import FeatureMap, LearntMap
from kernattn.features._learnt import can_fold, number_shapes
from kernattn.torch._in_graphs import OPS, autocast, check_gates, into, sums_dtype, times
from kernattn.torch._ops import STEP, TORCH_OPS
from kernattn.torch._plans import plan_of
from kernattn.torch._recipes import FIXED, recipe_of, remade
from kernattn.torch._specs import KeptMap, map_of, names_of
from kernattn.torch._traced_compressed import compressed
from kernattn.torch._traced_gated import (  # noqa: F401 (namesakes, too)
    gated_linear_attention,
    gated_linear_attention_step,
    gated_state,
    member,
    merge_gated,
)
from kernattn.torch._traced_outside import (  # noqa: F401 (namesakes)
    kernel_attention,
    log_evidence,
    lsh_attention,
    predict,
    random_features,
    routing_attention,
)

LEAVES = {name: tuple(leaf.name for leaf in op.leaves.values()) for name, op in (TORCH_OPS | {"step": STEP}).items()}
"""The names of the tensors that an op takes, in its order."""

SPECS = {name: op.record.maps for name, op in (TORCH_OPS | {"step": STEP}).items()}
"""The names of the maps that it takes after them."""


def _run(name: str, in_place: bool, phi: FeatureMap, backend: str | None, given: dict[str, Any]) -> Any:
    """Call an op of a map; None where features are computed, or the reference is asked for."""
    numbers: dict[str, Any] = {}
    if isinstance(phi, LearntMap):
        numbers, ratio = _numbers(phi)
        if ratio is not None:
            given |= {name: times(given[name], ratio) for name in ("q", "k", "x") if name in given}
    q_spec, k_spec, _ = _drawn(phi)._content
    specs = {"q_spec": q_spec, "k_spec": k_spec, "spec": given.get("spec")}
    names = [specs[each] for each in SPECS[name]]
    if backend == "reference" or None in names:
        return None
    for each in SPECS[name]:
        for number in NUMBERS:
            given[f"{each}_{number}"] = numbers.get(number)
    leaves = [given.get(leaf) for leaf in LEAVES[name]]
    return getattr(OPS, f"{name}_" if in_place else name)(*leaves, *names, backend)


def _drawn(phi: Any) -> Any:
    """Return the map as it was drawn, whose content and fingerprint graphs may look at from now on."""
    base = phi.base if isinstance(phi, LearntMap) else phi
    if isinstance(base, FIXED):
        return KeptMap(*_map_by_recipe(recipe_of(base)))
    if not isinstance(base, FeatureMap | KeptMap):
        raise DTypeError("phi must be a FeatureMap")
    base._named()
    return base


def _numbers(phi: LearntMap) -> tuple[dict[str, Any], Tensor | None]:
    """Return what stands for numbers of the spec, and by how much rows are larger; the kernel's number is in one."""
    given: dict[str, Any] = dict(phi.numbers)
    base: Any = phi.base
    lengthscale, scale = given.pop("lengthscale", None), given.pop("scale", None)
    number = scale if lengthscale is None else lengthscale
    if number is None:
        return given, None
    number = torch.as_tensor(number)
    before = torch.as_tensor(1 / base.kernel.input_scale(base.dim), dtype=number.dtype, device=number.device)
    ratio = before / number if scale is None else number.sqrt() * before
    if not can_fold(base):
        return given, ratio
    for name, power in (("omega", 1), ("row_weights", 2)):
        found = given.get(name, getattr(base.spec, name))
        if found is not None:
            given[name] = torch.as_tensor(found, dtype=ratio.dtype, device=ratio.device) * ratio**power
    return given, None


def _traced_below(
    name: str, draw: str, plan: str, numbers: dict[str, Tensor], given: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Return what a function of the core makes of tensors, with a map or a plan of these names, traced below it.

    States come and go as plain tuples of their sums: the compiler takes no named ones here. Sizes that are symbols
    become numbers, which checks and plans ask for: there is a graph for each shape.
    """
    given, options = torch.utils._pytree.tree_map_only(Tensor, _of_numbers, (given, options))
    try:
        return _plain(_called(name, draw, plan, numbers, given, options))
    except KernattnError as error:
        raise UnsupportedFakeTensorException(str(error)) from error


def _of_numbers(x: Tensor) -> Tensor:
    return x if all(type(size) is int for size in x.shape) else x.expand([int(size) for size in x.shape])


def _called(
    name: str, draw: str, plan: str, numbers: dict[str, Tensor], given: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    phi = None if draw == "" else map_of(draw)
    if numbers and phi is not None:
        phi = LearntMap(phi, numbers)
    if name in ("query", "key"):
        return getattr(phi, name)(*given, **options)
    maps = () if phi is None else (phi,)
    given = tuple(_state(phi, x) if isinstance(x, tuple) else x for x in given)
    if "state" in options:
        options = options | {"state": _state(phi, options["state"])}
    if plan != "":
        found = plan_of(plan)
        options = options | ({"pattern": found} if found.kind == "parts" else {"causal": found is CAUSAL})
    return getattr(attention, name)(*given, *maps, **options)


def _one_draw(made_by: int, used_by: int) -> None:
    """Raise where a state of one draw meets another draw; without `fullgraph` the core then says which they are."""
    if made_by != used_by:
        raise StateMismatchError("the state was made by another map than phi: they must come from one draw")


def _state(phi: Any, parts: tuple[Tensor, ...]) -> Any:
    """Return the state of these parts: of linear attention, or with a window."""
    kind = LinearState if len(parts) == len(LinearState._fields) - 1 else WindowState
    return kind._make((*parts, phi.fingerprint))


def _plain(result: Any) -> Any:
    if isinstance(result, LinearState | WindowState):
        return tuple(result[:-1])
    return tuple(map(_plain, result)) if isinstance(result, tuple) else result


_by_array_operations = torch._dynamo.nonstrict_trace(_traced_below)


def _plan_name(pattern: Any, q: Tensor, k: Tensor, causal: bool) -> str:
    """Return the name of the plan for these tensors, a constant that no guard asks for."""
    n, length = index(q.shape[-2]), index(k.shape[-2])
    if isinstance(pattern, Pattern) and not pattern._long:
        return "" + _plan_by_recipe(recipe_of(pattern), n, length, causal)
    name: str = "" + pattern._named(n, length, causal)
    return name


@in_a_graph
def _plan_by_recipe(recipe: tuple[Any, ...], n: int, length: int, causal: bool) -> str:
    name: str = remade(recipe)._named(n, length, causal)
    return name


@in_a_graph
def _map_by_recipe(recipe: tuple[Any, ...]) -> tuple[Any, ...]:
    return names_of(remade(recipe))


def _composed(name: str, phi: FeatureMap | None, *given: Any, plan: str = "", **options: Any) -> Any:
    draw: str | None = ""
    numbers: dict[str, Tensor] = {}
    if phi is not None:
        numbers = phi.numbers if isinstance(phi, LearntMap) else {}
        draw = "" + _drawn(phi)._content[2]  # a constant that no guard asks for
    told = {name: value for name, value in options.items() if value is not None}  # such a call takes no None
    return _by_array_operations(name, draw, plan, numbers, given, told)


def linear_attention(
    q: Tensor, k: Tensor, v: Tensor, phi: FeatureMap, *, key_mask: Tensor | None = None, backend: str | None = None
) -> Tensor:
    q, k, v = autocast(q, k, v)
    made = _run("linear_attention", False, phi, backend, {"q": q, "k": k, "v": v, "key_mask": key_mask})
    if made is None:
        return _composed("linear_attention", phi, q, k, v, key_mask=key_mask, backend=backend)
    return made[0]


def causal_linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    phi: FeatureMap,
    *,
    state: LinearState | None = None,
    key_mask: Tensor | None = None,
    segment_ids: Tensor | None = None,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    backend: str | None = None,
) -> Any:
    q, k, v = autocast(q, k, v)
    rows = {"key_mask": key_mask, "segment_ids": segment_ids}
    given = {"q": q, "k": k, "v": v, **rows}
    if state is not None:
        _one_draw(state.fingerprint, _drawn(phi).fingerprint)
        given |= _leaves(state)
    if g is not None or gk is not None:
        check_gates(q, {"g": g, "gk": gk})
        logs = {"g": None if g is None else g.expand(*g.shape[:-1], q.shape[-2]), "gk": gk}
        made = _run("decayed", False, phi, backend, given | logs)
    else:
        made = _run("causal", False, phi, backend, given)
    if made is None:
        options: dict[str, Any] = rows | {"g": g, "gk": gk, "backend": backend}
        if state is not None:
            options["state"] = state.s, state.z, state.peak
        out, sums = _composed("causal_linear_attention", phi, q, k, v, **options)
        return out, _state(_drawn(phi), sums)
    return made[0], _state(_drawn(phi), (made[3], made[4], made[5]))


def initial_state(phi: FeatureMap, batch_shape: tuple[int, ...], value_dim: int, like: Tensor) -> Any:
    k, v = (like.new_zeros((*batch_shape, 1, size)) for size in (like.shape[-1], value_dim))
    return key_state(k, v, phi, key_mask=torch.zeros_like(v[..., 0], dtype=torch.bool))


def key_state(
    k: Tensor, v: Tensor, phi: FeatureMap, *, key_mask: Tensor | None = None, backend: str | None = None
) -> Any:
    k, v = autocast(k, v)
    made = _run("key_state", False, phi, backend, {"k": k, "v": v, "key_mask": key_mask})
    if made is None:
        made = _composed("key_state", phi, k, v, key_mask=key_mask, backend=backend)
    return _state(_drawn(phi), (made[0], made[1], made[2]))


def attend(state: LinearState, q: Tensor, phi: FeatureMap, *, backend: str | None = None) -> Tensor:
    _one_draw(state.fingerprint, _drawn(phi).fingerprint)
    (q,) = autocast(q)
    made = _run("attend", False, phi, backend, {"q": q, **_leaves(state)})
    if made is None:
        return _composed("attend", phi, (state.s, state.z, state.peak), q, backend=backend)
    return made[0]


def linear_attention_step(
    state: LinearState,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    phi: FeatureMap,
    *,
    key_mask: Tensor | None = None,
    g: Tensor | None = None,
    gk: Tensor | None = None,
    backend: str | None = None,
    reuse_state: bool = False,
    out: Tensor | None = None,
) -> Any:
    _one_draw(state.fingerprint, _drawn(phi).fingerprint)
    q, k, v = autocast(q, k, v)
    given = {"q": q, "k": k, "v": v, "key_mask": key_mask, **_leaves(state)}
    numbers, fades = phi.numbers.values() if isinstance(phi, LearntMap) else (), g is not None or gk is not None
    watched = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v, *state[:3], *numbers))
    if fades or watched or torch._C._are_functorch_transforms_active():  # of a batch nothing tells whether it is
        mask, g = (None if x is None else x[..., None] for x in (key_mask, g))
        gk = None if gk is None else gk[..., None, :]
        q, k, v = q[..., None, :], k[..., None, :], v[..., None, :]
        token, after = causal_linear_attention(q, k, v, phi, state=state, key_mask=mask, g=g, gk=gk, backend=backend)
        token = token[..., 0, :]
    elif (made := _run("step", reuse_state, phi, backend, given)) is None:
        options: dict[str, Any] = {"key_mask": key_mask, "backend": backend}
        token, sums = _composed("linear_attention_step", phi, (state.s, state.z, state.peak), q, k, v, **options)
        after = _state(_drawn(phi), sums)
    elif reuse_state:
        token, after = made, state
    else:
        token, after = made[0], LinearState(made[1], made[2], made[3], state.fingerprint)
    return into(out, token), after


def _leaves(state: LinearState) -> dict[str, Tensor]:
    return {"state_s": state.s, "state_z": state.z, "state_peak": state.peak}


def softmax_attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
    return softmax_with_lse(q, k, v, **options)[0]


def softmax_with_lse(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: Any = None,
    causal: bool = False,
    key_mask: Tensor | None = None,
    key_bias: Tensor | None = None,
    pattern: Any = None,
    backend: str | None = None,
) -> tuple[Tensor, Tensor]:
    q, k, v = autocast(q, k, v)
    if key_bias is not None:
        (key_bias,) = autocast(key_bias)
    if isinstance(scale, Tensor):
        if scale.ndim:
            raise ShapeError("scale must be a number, or an array of shape ()")
        if not scale.is_floating_point():
            raise DTypeError("scale must have one of the floating dtypes")
        wide = sums_dtype(q)
        q, scale = (q.to(wide) * scale.to(wide)).to(q.dtype), 1.0
    elif scale is not None and (isinstance(scale, bool) or not isinstance(scale, int | float)):
        raise ParameterError("scale must be a finite number")
    plan = "causal" if boolean("causal", causal) else "all"
    if pattern is not None:
        plan = _plan_name(pattern, q, k, causal)
    if backend == "reference":
        options = {"scale": scale, "key_mask": key_mask, "key_bias": key_bias, "backend": backend}
        out, lse = _composed("softmax_with_lse", None, q, k, v, plan=plan, **options)
    else:
        scale = q.shape[-1] ** -0.5 if scale is None else scale
        out, lse = OPS.block_softmax(q, k, v, key_mask, key_bias, scale, plan, backend)
    return out, lse


def compressed_attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
    if options.get("backend") == "reference":
        return _composed("compressed_attention", None, q, k, v, **options)
    return compressed(q, k, v, **options)


def linformer_attention(q: Tensor, k: Tensor, v: Tensor, e: Tensor, f: Tensor, **options: Any) -> Any:
    return _composed("linformer_attention", None, q, k, v, e, f, **options)


def nystrom_attention(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Any:
    return _composed("nystrom_attention", None, q, k, v, **options)


def scatterbrain_attention(
    q: Tensor, k: Tensor, v: Tensor, phi: FeatureMap, pattern: Any, *, causal: bool = False, **options: Any
) -> Any:
    plan = _plan_name(pattern, q, k, causal)
    return _composed("scatterbrain_attention", phi, q, k, v, plan=plan, causal=causal, **options)


def window_attention(
    q: Tensor, k: Tensor, v: Tensor, phi: FeatureMap, window: int, *, state: WindowState | None = None, **options: Any
) -> Any:
    if state is not None:
        _one_draw(state.fingerprint, _drawn(phi).fingerprint)
        options["state"] = tuple(state[:-1])
    out, parts = _composed("window_attention", phi, q, k, v, window=int(window), **options)
    return out, _state(_drawn(phi), parts)


def window_attention_step(state: WindowState, q: Tensor, k: Tensor, v: Tensor, phi: FeatureMap, **options: Any) -> Any:
    mask = options.pop("key_mask", None)
    mask = None if mask is None else mask[..., None]
    q, k, v = q[..., None, :], k[..., None, :], v[..., None, :]
    out, after = window_attention(q, k, v, phi, state.k.shape[-2], state=state, key_mask=mask, **options)
    return out[..., 0, :], after


def query(phi: FeatureMap, x: Tensor, *, backend: str | None = None) -> Tensor:
    return _features("query", 0, phi, x, backend)


def features(phi: FeatureMap, x: Tensor, *, backend: str | None = None) -> Tensor:
    base = phi.base if isinstance(phi, LearntMap) else phi
    if isinstance(base, FeatureMap):
        base._check_shared()
    return query(phi, x, backend=backend)


def key(phi: FeatureMap, x: Tensor, *, backend: str | None = None) -> Tensor:
    return _features("key", 1, phi, x, backend)


def _features(name: str, side: int, phi: FeatureMap, x: Tensor, backend: str | None) -> Tensor:
    (x,) = autocast(x)
    made = _run("features", False, phi, backend, {"x": x, "spec": _drawn(phi)._content[side]})
    return _composed(name, phi, x, backend=backend) if made is None else made


def with_numbers(phi: FeatureMap, **numbers: Tensor | None) -> LearntMap:
    phi._named()
    given = {name: number for name, number in numbers.items() if number is not None}
    for name, number in given.items():
        shapes = number_shapes(phi, name)
        if tuple(number.shape) not in shapes:
            raise ShapeError(f"{name} must have one of the shapes {shapes}, of which a map without it has none")
    return LearntMap(phi, given)
