"""The arrays that states are made of, whatever their kind."""

from __future__ import annotations

from collections.abc import Iterator
from types import NoneType
from typing import Any, TypeVar

from kernattn._arrays.namespaces import FLOATS, INTEGERS, Array, check_alike, dtype_name, namespace
from kernattn._arrays.plain import plain
from kernattn._sums.peaked import LinearState
from kernattn.attention._check_states import check_draws, check_is_state
from kernattn.attention._gated import GatedState
from kernattn.attention._gated_states import GatedStretch
from kernattn.attention._mechanisms.window_states import WindowState, window_of
from kernattn.errors import DTypeError, StateMismatchError

State = TypeVar("State", bound=tuple[Any, ...])

KINDS: dict[str, type] = {
    "linear": LinearState,
    "gated": GatedState,
    "stretch": GatedStretch,
    "window": WindowState,
}
HOLDERS: dict[str, type] = {}
"""Named tuples whose arrays have one first axis, such as what a model remembers, by their names."""

OWN = {"s": 2, "z": 1, "peak": 1, "through": 2, "k": 2, "v": 2, "present": 1}
"""How many axes of a part are one state's own; those before are batches."""


Holder = TypeVar("Holder", bound=type)


def holds_states(holder: Holder) -> Holder:
    """Let a class of named tuples, whose arrays have one first axis, be taken apart as batches of states are."""
    HOLDERS[holder.__name__] = holder
    return holder


def kind_of(name: str, state: Any) -> str:
    """Return the name of a state's kind."""
    for kind, its_class in KINDS.items():
        if isinstance(state, its_class):
            return kind
    *most, last = (each.__name__ for each in KINDS.values())
    several = ", of which ka.stack_states makes one" if type(state) in (list, tuple) else ""
    raise DTypeError(f"{name} must be a {', '.join(most)} or {last}; got {type(state).__name__}{several}")


def parts_of(name: str, state: Any) -> dict[str, Array]:
    """Return the arrays of a state, which must be whole: all have its leading axes."""
    kind = kind_of(name, state)
    parts = {part: x for part, x in state._asdict().items() if part != "fingerprint"}
    namespace(**{f"{name}.{part}": x for part, x in parts.items()})
    if kind in ("linear", "window"):
        check_is_state(**{name: state if kind == "linear" else state.linear})
    else:
        check_alike({f"{name}.{part}": x for part, x in parts.items()}, {})
    if kind == "window":
        window_of(state)
        check_alike({f"{name}.k": state.k, f"{name}.v": state.v}, {})
        if dtype_name(state.present) != "bool":
            raise DTypeError(f"{name}.present must have dtype bool; got {dtype_name(state.present)}")
    shapes = {part: tuple(x.shape) for part, x in parts.items()}
    leads = {part: shape[: len(shape) - OWN[part]] for part, shape in shapes.items()}
    if any(len(shape) < OWN[part] for part, shape in shapes.items()) or len(set(leads.values())) > 1:
        raise StateMismatchError(f"the parts of {name} must have its leading axes; got shapes {shapes}")
    if kind == "window" and not shapes["k"][-2] == shapes["v"][-2] == shapes["present"][-1]:
        raise StateMismatchError(f"k, v and present of {name} must have one length; got shapes {shapes}")
    return parts


def made_of(kind: str, parts: dict[str, Array], fingerprint: int | None) -> Any:
    """Return the state of a kind."""
    return KINDS[kind](**parts) if fingerprint is None else KINDS[kind](**parts, fingerprint=fingerprint)


def leaves_of(name: str, state: Any) -> dict[str, Array]:
    """Return the arrays of a state, or of a tuple of them, such as what a model remembers, by their places in it."""
    if not isinstance(state, tuple):
        kind_of(name, state)  # raises
    return dict(_leaves(name, plain(state)))


def _leaves(name: str, state: Any) -> Iterator[tuple[str, Array]]:
    if isinstance(state, tuple(KINDS.values())):
        yield from ((f"{name}.{part}", x) for part, x in parts_of(name, state).items())
    elif isinstance(state, tuple):
        fields = getattr(state, "_fields", None)
        if fields is not None and type(state) not in HOLDERS.values():
            kind_of(name, state)  # raises
        for at, each in enumerate(state):
            yield from _leaves(f"{name}[{at}]" if fields is None else f"{name}.{fields[at]}", each)
    elif state is not None:
        namespace(**{name: state})
        if dtype_name(state) not in (*FLOATS, *INTEGERS, "bool"):
            raise DTypeError(f"{name} must be an array of numbers or bool; got {dtype_name(state)}")
        yield name, state


def with_leaves(state: Any, leaves: Iterator[Array]) -> Any:
    """Return a state like another, of other arrays in the order of `leaves_of`."""
    if not isinstance(state, tuple):
        return None if state is None else next(leaves)
    names = getattr(state, "_fields", range(len(state)))
    made = [x if name == "fingerprint" else with_leaves(x, leaves) for name, x in zip(names, state, strict=True)]
    return type(state)(*made) if hasattr(state, "_fields") else tuple(made)


def check_same(name: str, state: Any, other_name: str, other: Any) -> None:
    """Raise unless two states are of one kind and one map, in all their parts."""
    if type(state) is not type(other) and (isinstance(state, tuple | NoneType) or isinstance(other, tuple | NoneType)):
        raise StateMismatchError(f"{name} is a {type(state).__name__}, {other_name} a {type(other).__name__}")
    if not isinstance(state, tuple):
        return
    if hasattr(state, "fingerprint"):
        check_draws(state.fingerprint, other.fingerprint)
        return
    if len(state) != len(other):
        raise StateMismatchError(f"{name} has {len(state)} parts, {other_name} {len(other)}")
    for at, (one, two) in enumerate(zip(state, other, strict=True)):
        check_same(f"{name}[{at}]", one, f"{other_name}[{at}]", two)
