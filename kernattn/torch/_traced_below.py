"""What functions share that graphs trace: ops of maps, and calls of the core that are traced below them."""

from collections.abc import Callable
from operator import index
from typing import Any

import torch
from torch import Tensor

from kernattn import attention
from kernattn._arrays.graphs import in_a_graph
from kernattn._maps.learnt import NUMBERS
from kernattn._plans.plan import CAUSAL
from kernattn.attention import LinearState, WindowState
from kernattn.attention.patterns import Pattern
from kernattn.errors import DTypeError, KernattnError, ParameterError, StateMismatchError
from kernattn.features import FeatureMap, LearntMap
from kernattn.features._learnt import can_fold
from kernattn.torch._in_graphs import OPS, differentiated_by_func, times
from kernattn.torch._ops import STEP, TORCH_OPS
from kernattn.torch._plans import plan_of
from kernattn.torch._recipes import FIXED, recipe_of, remade
from kernattn.torch._specs import KeptMap, map_of, names_of

LEAVES = {name: tuple(leaf.name for leaf in op.leaves.values()) for name, op in (TORCH_OPS | {"step": STEP}).items()}
"""The names of the tensors that an op takes, in its order."""

SPECS = {name: op.record.maps for name, op in (TORCH_OPS | {"step": STEP}).items()}
"""The names of the maps that it takes after them."""


def run_op(name: str, in_place: bool, phi: FeatureMap, backend: str | None, given: dict[str, Any]) -> Any:
    """Call an op of a map; None where features are computed, or the reference is asked for."""
    numbers: dict[str, Any] = {}
    if isinstance(phi, LearntMap):
        numbers, ratio = _numbers(phi)
        if ratio is not None:
            if given.get("key_mask") is not None:
                given["k"] = torch.where(given["key_mask"][..., None], given["k"], 0.0)  # NaN has no gradient
            given |= {name: times(given[name], ratio) for name in ("q", "k", "x") if name in given}
    q_spec, k_spec, _ = admit_drawn(phi)._content
    specs = {"q_spec": q_spec, "k_spec": k_spec, "spec": given.get("spec")}
    names = [specs[each] for each in SPECS[name]]
    if backend == "reference" or None in names or differentiated_by_func():
        return None
    for each in SPECS[name]:
        for number in NUMBERS:
            given[f"{each}_{number}"] = numbers.get(number)
    leaves = [given.get(leaf) for leaf in LEAVES[name]]
    return getattr(OPS, f"{name}_" if in_place else name)(*leaves, *names, backend)


def admit_drawn(phi: Any) -> Any:
    """Return the map as it was drawn, whose content and fingerprint graphs may look at from now on."""
    base = phi.base if isinstance(phi, LearntMap) else phi
    if isinstance(base, FIXED):
        return KeptMap(*_map_by_recipe(recipe_of(base)))
    if not isinstance(base, FeatureMap | KeptMap):
        raise DTypeError("phi must be a FeatureMap")
    base._admit_to_graphs()
    return base


def _numbers(phi: LearntMap) -> tuple[dict[str, Any], Tensor | None]:
    """Return the learnt numbers of the spec, and the factor of its rows, which holds the kernel's own number."""
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
        value = given.get(name, getattr(base.spec, name))
        if value is not None:
            given[name] = torch.as_tensor(value, dtype=ratio.dtype, device=ratio.device) * ratio**power
    return given, None


_refused: list[str] = []
"""Why the last call below a graph was refused."""


def traced_below(function: Callable[..., Any], any_size: bool = False) -> Callable[..., Any]:
    """Return a function of which graphs hold the array operations.

    Numbers that are symbols become what they are, and so do sizes unless the operations are the same for any, for
    checks and plans ask for them: there is a graph for each. What is refused below a graph the compiler would not
    tell; it tells what a function of the graph raises.
    """
    symbols = (torch.SymInt, torch.SymFloat) if any_size else (Tensor, torch.SymInt, torch.SymFloat)

    def below(*given: Any) -> Any:
        given = torch.utils._pytree.tree_map_only(symbols, _of_numbers, given)
        try:
            return function(*given)
        except (KernattnError, TypeError) as error:
            _refused.append(str(error))
            return ()

    traced = torch._dynamo.nonstrict_trace(below)

    def call(*given: Any) -> Any:
        made = traced(*given)
        if isinstance(made, tuple) and not made:
            raise ParameterError("" + _why())  # a constant that no guard asks for
        return made

    return call


@in_a_graph
def _why() -> str:
    return _refused.pop()


def _of_numbers(x: Any) -> Any:
    if not isinstance(x, Tensor):
        return int(x) if isinstance(x, torch.SymInt) else float(x)
    return x if all(type(size) is int for size in x.shape) else x.expand([int(size) for size in x.shape])


def _call_core(
    name: str, draw: str, plan: str, numbers: dict[str, Tensor], given: tuple[Any, ...], options: dict[str, Any]
) -> Any:
    """Call a function of the core with tensors, and the map and the plan that have these names.

    States come and go as plain tuples of their sums: the compiler takes no named ones here.
    """
    phi = None if draw == "" else map_of(draw)
    if numbers and phi is not None:
        phi = LearntMap(phi, numbers)
    if name in ("query", "key"):
        return getattr(phi, name)(*given, **options)
    maps = () if phi is None else (phi,)
    given = tuple(state_of(phi, x) if isinstance(x, tuple) else x for x in given)
    if "state" in options:
        options = options | {"state": state_of(phi, options["state"])}
    if plan != "":
        kept = plan_of(plan)
        options = options | ({"pattern": kept} if kept.kind == "parts" else {"causal": kept is CAUSAL})
    return _plain(getattr(attention, name)(*given, *maps, **options))


def one_draw(made_by: int, used_by: int) -> None:
    """Raise where a state of one draw meets another draw; without `fullgraph` the core then says which they are."""
    if made_by != used_by:
        raise StateMismatchError("the state was made by another map than phi: they must come from one draw")


def state_of(phi: Any, parts: tuple[Tensor, ...]) -> Any:
    """Return the state of these parts: of linear attention, or with a window."""
    kind = LinearState if len(parts) == len(LinearState._fields) - 1 else WindowState
    return kind._make((*parts, phi.fingerprint))


def _plain(result: Any) -> Any:
    if isinstance(result, LinearState | WindowState):
        return tuple(result[:-1])
    return tuple(map(_plain, result)) if isinstance(result, tuple) else result


_by_array_operations = traced_below(_call_core)


def plan_name(pattern: Any, q: Tensor, k: Tensor, causal: bool) -> str:
    """Return the name of the plan for these tensors, a constant that no guard asks for."""
    n, length = index(q.shape[-2]), index(k.shape[-2])
    if isinstance(pattern, Pattern) and not pattern._long:
        return "" + _plan_by_recipe(recipe_of(pattern), n, length, causal)
    name: str = "" + pattern._graph_name(n, length, causal)
    return name


@in_a_graph
def _plan_by_recipe(recipe: tuple[Any, ...], n: int, length: int, causal: bool) -> str:
    name: str = remade(recipe)._graph_name(n, length, causal)
    return name


@in_a_graph
def _map_by_recipe(recipe: tuple[Any, ...]) -> tuple[Any, ...]:
    return names_of(remade(recipe))


def trace_composed(name: str, phi: FeatureMap | None, *given: Any, plan: str = "", **options: Any) -> Any:
    draw: str | None = ""
    numbers: dict[str, Tensor] = {}
    if phi is not None:
        numbers = phi.numbers if isinstance(phi, LearntMap) else {}
        draw = "" + admit_drawn(phi)._content[2]  # a constant that no guard asks for
    present = {name: value for name, value in options.items() if value is not None}  # such a call takes no None
    return _by_array_operations(name, draw, plan, numbers, given, present)


def leaves_of(state: LinearState) -> dict[str, Tensor]:
    return {"state_s": state.s, "state_z": state.z, "state_peak": state.peak}
