"""The arrays that states are made of, whatever their kind."""

from __future__ import annotations

from typing import Any, TypeVar

from kernattn._arrays.namespaces import Array, check_alike, dtype_name, namespace
from kernattn._sums.peaked import LinearState
from kernattn.attention._check_states import check_is_state
from kernattn.attention._gated import GatedState
from kernattn.attention._gated_states import GatedStretch
from kernattn.attention._mechanisms.window_states import WindowState, window_of
from kernattn.errors import DTypeError, StateMismatchError

State = TypeVar("State", bound=LinearState | GatedState | GatedStretch | WindowState)

KINDS: dict[str, type] = {
    "linear": LinearState,
    "gated": GatedState,
    "stretch": GatedStretch,
    "window": WindowState,
}
OWN = {"s": 2, "z": 1, "peak": 1, "through": 2, "k": 2, "v": 2, "present": 1}
"""How many axes of a part are one state's own; those before are batches."""


def kind_of(name: str, state: Any) -> str:
    """Return the name of a state's kind."""
    for kind, its_class in KINDS.items():
        if isinstance(state, its_class):
            return kind
    allowed = ", ".join(each.__name__ for each in KINDS.values())
    raise DTypeError(f"{name} must be a {allowed}; got {type(state).__name__}")


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
