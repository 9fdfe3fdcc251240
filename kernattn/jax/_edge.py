"""Where ops of the core meet arrays that JAX traces: `jit`, `grad`, `vmap` and `scan` call compiled loops."""

from typing import Any

import jax
from jax import tree_util

from kernattn._arrays.bridge import CannotLend, Jax
from kernattn._maps.kinds import KINDS
from kernattn._maps.learnt import numbers_of, plain
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.peaked import LinearState, PeakedSum
from kernattn.attention import WindowState
from kernattn.jax._calls import differentiable
from kernattn.jax._frames import in_frames
from kernattn.jax._hosted import run_hosted  # noqa: F401
from kernattn.jax._rules import Rule, StepRule
from kernattn.ops.gated_step.reference import as_sequence
from kernattn.ops.record import Record
from kernattn.ops.records import RECORDS

NAMES = tuple(map(tree_util.GetAttrKey, LinearState._fields[:3]))


def _make_state(fingerprint: int, arrays: tuple[Any, Any, Any]) -> LinearState:
    s, z, peak = arrays
    return LinearState(s, z, peak, fingerprint)


tree_util.register_pytree_with_keys(  # the draw is no array: it is compared where JAX traces, too
    LinearState,
    lambda state: (tuple(zip(NAMES, state[:3], strict=True)), state.fingerprint),
    _make_state,
    lambda state: (state[:3], state.fingerprint),
)


_WINDOW = tuple(name for name in WindowState._fields if name != "fingerprint")


def _made_window(fingerprint: int, arrays: tuple[Any, ...]) -> WindowState:
    return WindowState._make((*arrays, fingerprint))


tree_util.register_pytree_with_keys(
    WindowState,
    lambda state: (tuple((tree_util.GetAttrKey(x), getattr(state, x)) for x in _WINDOW), state.fingerprint),
    _made_window,
    lambda state: (state[:-1], state.fingerprint),
)


def hand_over(library: Jax, name: str, backend: str | None, arguments: tuple[Any, ...]) -> Any:
    """Return the outputs of an op of the core; NotImplemented where array operations are to do it."""
    if name == "gated_step":
        return as_sequence(lambda *sequence: hand_over(library, "gated", backend, sequence), *arguments)
    record = RECORDS.get(name)
    if record is None or jax.default_backend() != "cpu":
        return NotImplemented
    count = len(record.inputs)
    given, options = arguments[:count], arguments[count:]
    if not all(map(_fits, given)) or (name != "step" and options and options[-1]):
        return NotImplemented
    leaves, constants = record.flat(given)
    learns = any(x is not None for each in given if isinstance(each, MapSpec) for x in numbers_of(each))
    rule = _rule(record, tuple(plain(x) if isinstance(x, MapSpec) else x for x in constants), learns)
    try:
        made = differentiable(rule, *_with_equal_leads(record, leaves))
    except CannotLend:  # arrays that are not traced, and that loops do not take
        return NotImplemented
    return _give_back(record, made, leaves)


def _fits(argument: Any) -> bool:
    """Do the ops here take an argument, and return all of its cotangents?"""
    if isinstance(argument, MapSpec):
        return KINDS[argument.kind].pull is not None
    return not isinstance(argument, ScaledFeatures)


def _rule(record: Record, constants: tuple[Any, ...], learns: bool) -> Rule:
    if record.name != "step":
        return Rule(record, constants, learns)
    q_spec, k_spec = constants
    return StepRule(record, constants, learns, in_frames(q_spec, k_spec, learns))


def _with_equal_leads(record: Record, leaves: list[Any]) -> list[Any]:
    """Return leaves with equally many leading axes; a map's numbers have none."""
    batched = [x is not None and leaf.number_of is None for leaf, x in zip(record.leaves, leaves, strict=True)]
    counts = [len(leaf.axes) for leaf in record.leaves]
    most = max(x.ndim - count for x, count, some in zip(leaves, counts, batched, strict=True) if some)
    return [
        x.reshape((1,) * (most + count - x.ndim) + x.shape) if some and x.ndim < most + count else x
        for x, count, some in zip(leaves, counts, batched, strict=True)
    ]


def _give_back(record: Record, made: tuple[Any, ...], leaves: list[Any]) -> Any:
    """Return results as the op does, with the leading axes of its inputs as they were given."""
    parts = iter(made)
    outputs: list[Any] = []
    for output in record.outputs:
        if output.kind == "normaliser":
            outputs.append(None)
        elif output.returned:
            lead = record.leading(leaves, output.lead)
            arrays = [(next(parts), leaf) for leaf in output.leaves]
            shaped = [x.reshape(lead + x.shape[x.ndim - len(leaf.axes) :]) for x, leaf in arrays]
            outputs.append(shaped[0] if output.kind == "array" else PeakedSum(*shaped))
    return outputs[0] if len(record.outputs) == 1 else tuple(outputs)
