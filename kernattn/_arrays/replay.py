"""Calls of a form that has been seen: the op that a public function called is called again, at once.

A public function at the door checks the forms of its arguments, lowers them and calls one op. What it hands to the op,
and what it returns of the op's outputs, follows from these forms, so it is noted of the first call of a form, and calls
after that need no check. A function that computes an array before its op, or after it, is not noted, nor is a call
whose values decide.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache, partial
from typing import Any
from weakref import ref

import numpy as np

from kernattn._arrays.bridge import CannotLend

MOST = 256  # forms that are remembered, of one function
BY_FORM = {"state", "key_mask", "segment_ids", "key_bias", "score_bias"}
"""Options that are arrays, and whose values no check looks at."""

Way = Callable[[Any], Callable[..., Any]]
Look = Callable[[Callable[..., Any]], Callable[..., Any]]
CONSTANTS = {type(None), bool, int, float, str}
_NOTHING = np.zeros(0)


class Extreme(Exception):
    """What an op raises of values that it does not take; its function knows another way."""


class Witness:
    """What a function takes in place of a backend where the op that it calls is to be noted."""

    def implementation(self, op: Any) -> Callable[..., Any]:
        """Return a function that runs an op on NumPy's arrays."""
        raise NotImplementedError


class Call:
    """Arguments that have crossed, and what decides about them: `key`."""

    named = False  # whether some were given by name

    def __init__(self) -> None:
        self.key: list[Any] = []
        self.arrays: list[Any] = []
        self.maps: list[Any] = []

    def add(self, values: Iterable[Any], maps: set[type]) -> bool:
        """Take arguments; False where one of them may decide by more than its form."""
        for x in values:
            kind = type(x)
            if kind is np.ndarray:
                self.key += x.shape, x.dtype
                self.arrays.append(x)
            elif kind in maps:
                self.key.append(id(x))
                self.maps.append(x)
            elif kind is float:
                self.key += kind, x.hex()  # 0.0 and -0.0 are equal
            elif kind in CONSTANTS:
                self.key += kind, x
            elif isinstance(x, tuple):
                self.key += kind, len(x)
                if not self.add(x, maps):
                    return False
            else:
                return False
        return True


def call_of(lent: list[Any], named: Mapping[str, Any], maps: set[type], by_form: set[str]) -> Call | None:
    """Return a call whose form decides what its function does; None where that may not be so."""
    call = Call()
    if not call.add(lent, maps):
        return None
    if named:
        if any(name not in by_form and type(x) not in CONSTANTS for name, x in named.items()):
            return None
        call.named = True
        call.key.append(tuple(named))
        if not call.add(named.values(), maps):
            return None
    return call


class Known:
    """What a function does with arrays of one form."""

    def __init__(self, note: "_Note", result: Any, call: Call, look: Look) -> None:
        if note.outputs is None:
            raise CannotLend("it calls no op")
        if not all(map(_is_frozen, call.maps)):
            raise CannotLend("a map may change")
        given, made = _Source("a", call.arrays), _Source("o", note.outputs)
        arguments = ", ".join(given.of(x) for x in note.arguments)
        made.constants = given.constants
        self.code = _compile_call(arguments, made.of(result, "g({})"))
        if given.used != set(given.names.values()):
            raise CannotLend("an argument is looked at")
        if not (call.named or given.names.keys().isdisjoint(made.names)):
            raise CannotLend("an argument is returned, though nothing asks for it")
        self.op, self.run, self.constants = note.op, look(note.op.function("cpu")), given.constants
        self.maps = [ref(phi) for phi in call.maps]

    def is_of(self, maps: list[Any]) -> bool:
        """Whether these are its maps: an object may have the number of one that is gone."""
        for own, phi in zip(self.maps, maps, strict=False):  # noqa: SIM110 (in half the time)
            if own() is not phi:
                return False
        return True


class _Source:
    """Names of arrays in an expression, and its constants c."""

    def __init__(self, name: str, values: Any) -> None:
        self.names: dict[int, str] = {}
        self.used: set[str] = set()
        self.constants: list[Any] = []
        self._add(name, values)

    def _add(self, name: str, value: Any) -> None:
        if isinstance(value, np.ndarray):
            self.names[id(value)] = name
        elif isinstance(value, tuple | list):
            for at, x in enumerate(value):
                self._add(f"{name}[{at}]", x)

    def of(self, value: Any, form: str = "{}") -> str:
        """Return the expression of a value."""
        if isinstance(value, np.ndarray):
            if id(value) not in self.names:
                raise CannotLend("an array was computed")
            self.used.add(self.names[id(value)])
            return form.format(self.names[id(value)])
        if isinstance(value, tuple):
            parts = "".join(self.of(x, form) + "," for x in value)
            return f"({parts})" if type(value) is tuple else f"new({self._constant(type(value))}, ({parts}))"
        return self._constant(value)

    def _constant(self, value: Any) -> str:
        self.constants.append(value)
        return f"c[{len(self.constants) - 1}]"


@cache
def _compile_call(arguments: str, result: str) -> Callable[..., Any]:
    """Return a function that calls an op with arrays a and constants c, and makes a result of its outputs o by g."""
    body = f"def call(run, a, c, g):\n    o = run({arguments})\n    return {result}\n"
    made: dict[str, Any] = {"new": tuple.__new__}
    exec(body, made)
    return made["call"]  # type: ignore[no-any-return]


def as_it_is(given: Any) -> Any:
    """Give an output of the op as it gave it, or a loop that looks at nothing."""
    return given


def _is_frozen(phi: Any) -> bool:
    """Return whether a map is a frozen value, as all should be; what a user wrote may have other numbers later.

    Its own class says so: one that derives from a frozen one, and is none itself, takes new attributes.
    """
    return bool(getattr(vars(type(phi)).get("__dataclass_params__"), "frozen", False))


def _on_the_host(backend: str | None, op: Any) -> Callable[..., Any]:
    if backend not in (None, "cpu") or op.choose(_NOTHING, backend) != "cpu":
        raise CannotLend("it does not run on NumPy's arrays")
    return op.function("cpu")  # type: ignore[no-any-return]


class _Note(Witness):
    """Runs the op of one call, and notes what it took and gave."""

    def __init__(self, arrays: list[Any], way: Way) -> None:
        self._arrays, self._way = arrays, way
        self.op: Any = None
        self.outputs: Any = None

    def implementation(self, op: Any) -> Callable[..., Any]:
        """Return a function that runs the op, once."""
        if self.op is not None:
            raise CannotLend("it calls another op")
        self.op, self._run = op, self._way(op)
        return self._run_and_note

    def _run_and_note(self, *arguments: Any) -> Any:
        _Source("a", self._arrays).of(arguments)  # raises before the op runs, which may write to an argument
        self.arguments, self.outputs = arguments, self._run(*arguments)
        return self.outputs


class Replay:
    """A function, and what it does with the forms that it has seen. Threads may call it at once.

    Of options in `seen`, values decide only whether they are refused: `look` returns a loop that looks at them first.
    """

    def __init__(self, function: Callable[..., Any], seen: Iterable[str] = (), look: Look = as_it_is) -> None:
        self.function, self.look = function, look
        self.by_form = {*BY_FORM, *seen}
        self.known: dict[tuple[Any, ...], Known | None] = {}

    def recall(self, call: Call) -> Known | None:
        """Return the note of a call's form: None of a new one, and of one that cannot be noted."""
        known = self.known.get(tuple(call.key))
        return known if known is not None and known.is_of(call.maps) else None

    def note_call(self, call: Call, lent: list[Any], named: dict[str, Any], way: Way | None) -> Any:
        """Call a function, its op run on the host or in a way, and note the call; NotImplemented if it cannot be."""
        key = tuple(call.key)
        refused = key if way is None else (key,)  # an op that nothing records can be noted where nobody differentiates
        if refused in self.known:
            return NotImplemented
        note = _Note(call.arrays, way or partial(_on_the_host, named.get("backend")))
        result, known = NotImplemented, None
        with suppress(CannotLend):
            result = self.function(*lent, **{**named, "backend": note})
            with suppress(TypeError):  # of maps that cannot be referred to
                known = Known(note, result, call, self.look)
        if len(self.known) >= MOST:
            self.known.clear()
        self.known[refused if known is None else key] = known
        return result
