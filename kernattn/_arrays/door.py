"""The door of public functions: tensors that nobody watches cross it at once, and the call is one of NumPy's arrays.

Of what is watched, cannot be lent, or is refused, the function is called with the tensors themselves. A small call
takes as long as this file: it asks PyTorch for as little as it can, and each question once.
"""

from collections.abc import Callable, Iterable
from functools import partial, wraps
from inspect import signature
from typing import Any, TypeVar

import numpy as np

from kernattn._arrays.bridge import CannotLend, Torch, library_of
from kernattn._arrays.hooks import edge
from kernattn._arrays.replay import CONSTANTS, Extreme, Look, Replay, as_it_is, call_of
from kernattn._runtime.elsewhere import tell_keyword
from kernattn.errors import DTypeError, KernattnError

F = TypeVar("F", bound=Callable[..., Any])
Lend = Callable[[Any], Any]
Own = dict[int, Any]
"""Tensors, by the identity of the arrays that stand for them."""


class Door:
    """The way of tensors in host memory."""

    def __init__(self, library: Torch) -> None:
        self.library, self.kinds, self.bfloat16 = library, library.kinds, library.bfloat16
        self.bits, self.narrow = library.torch.int16, library.named.get(library.bfloat16)
        self.from_numpy, self.is_watched = library.from_numpy, _watch_of(library)
        self.others: set[type] = set()  # whose values cross as they are
        self.maps: set[type] = set()  # whose values cross unless arrays are learnt in them

    def lend_all(self, values: Iterable[Any], lend: Lend | None, own: Own | None) -> list[Any]:
        """Return arguments with tensors lent as arrays; without `lend`, NumPy itself takes a tensor, or refuses it."""
        lent: list[Any] = []
        for value in values:
            kind = type(value)
            if kind in self.kinds:
                array = value.numpy() if lend is None else lend(value)
                if own is not None:
                    own[id(array)] = value
                lent.append(array)
            elif kind in self.others or (kind in self.maps and not value._of_arrays):
                lent.append(value)
            else:
                lent.append(self._other(value, lend, own))
        return lent

    def lend_detached(self, tensor: Any) -> Any:
        """Lend a tensor without its history."""
        if tensor.requires_grad:
            tensor = tensor.detach()
        return self.library.lend(tensor) if tensor.dtype is self.bfloat16 else tensor.numpy()

    def replay(self, replay: Replay, args: tuple[Any, ...], options: dict[str, Any], narrow: bool) -> Any:
        """Run the op that was noted of arguments of this form; return its result, or NotImplemented of a new form."""
        key: list[Any] = []
        arrays: list[Any] = []
        maps: list[Any] = []
        own: Own | None = {} if options else None  # an op may write to an argument, and return it
        for name, value in options.items():
            if name not in replay.by_form and type(value) not in CONSTANTS:
                return NotImplemented
        try:
            if not self._read(args, key, arrays, maps, own):
                return NotImplemented
            if options:
                key.append(tuple(options))
                if not self._read(options.values(), key, arrays, maps, own):
                    return NotImplemented
        except (RuntimeError, TypeError):
            return NotImplemented
        known = replay.known.get(tuple(key))
        if known is None or not known.is_of(maps):
            return NotImplemented
        give = self.give_narrow if narrow else self.give
        if own is not None:
            give = partial(self.give_or_own, own)
        return known.code(known.run, arrays, known.constants, give)

    def _read(self, values: Iterable[Any], key: list[Any], arrays: list[Any], maps: list[Any], own: Own | None) -> bool:
        """Take arguments as `Call.add` does, but tensors; False where one may decide by more than its form."""
        kinds, bfloat16 = self.kinds, self.bfloat16
        for value in values:
            kind = type(value)
            if kind in kinds:
                array = value.numpy() if value.dtype is not bfloat16 else self._bits(value)
                arrays.append(array)
                key += array.shape, array.dtype
                if own is not None:
                    own[id(array)] = value
            elif kind in self.maps:
                maps.append(value)
                key.append(id(value))
            elif kind in CONSTANTS:
                key += kind, value if kind is not float else value.hex()
            elif isinstance(value, tuple):
                key += kind, len(value)
                if not self._read(value, key, arrays, maps, own):
                    return False
            else:
                return False
        return True

    def _bits(self, tensor: Any) -> Any:
        """Lend a tensor of bfloat16 that nobody differentiates, by its bits."""
        if tensor.requires_grad:
            raise TypeError("it requires a gradient, of which its bits know nothing")
        return tensor.view(self.bits).numpy().view(self.narrow)

    def give(self, array: Any) -> Any:
        """Return the tensor of an array that nobody else has."""
        return self.from_numpy(array) if array.flags.carray else self.library.give(array, array)

    def give_narrow(self, array: Any) -> Any:
        """Return the tensor of an array that nobody else has, which may be of bfloat16."""
        return self.library.give(array, array)

    def give_or_own(self, own: Own, array: Any) -> Any:
        """Return the tensor of an array, which may be one that was given."""
        tensor = own.get(id(array))
        return self.library.give(array, array) if tensor is None else tensor

    def _other(self, value: Any, lend: Lend | None, own: Own | None) -> Any:
        if isinstance(value, tuple):
            return tuple.__new__(type(value), self.lend_all(value, lend, own))
        if isinstance(value, list):
            return self.lend_all(value, lend, own)
        if isinstance(value, (np.ndarray, self.library.kind)) or getattr(value, "_of_arrays", False):
            raise CannotLend("it is of another kind")
        (self.maps if hasattr(value, "_of_arrays") else self.others).add(type(value))
        return value

    def give_back(self, value: Any, narrow: bool, own: Own | None) -> Any:
        """Return a result in kind: of arrays that are in `own`, the tensors; none is `narrow` in most calls."""
        if type(value) is not tuple:
            return self.give_back_all([value], narrow, own)[0]
        return tuple(self.give_back_all(value, narrow, own))

    def give_back_all(self, values: Iterable[Any], narrow: bool, own: Own | None) -> list[Any]:
        """Return results in kind."""
        returned: list[Any] = []
        for value in values:
            if type(value) is np.ndarray:
                if own is not None and id(value) in own:
                    returned.append(own[id(value)])
                elif value.flags.carray and not narrow:
                    returned.append(self.from_numpy(value))
                else:
                    returned.append(self.library.give(value, value))
            elif isinstance(value, tuple):
                returned.append(tuple.__new__(type(value), self.give_back_all(value, narrow, own)))
            else:
                returned.append(value)
        return returned


def _watch_of(library: Torch) -> Callable[[], bool]:
    """Return a function that tells whether anything casts, traces, transforms or differentiates forwards."""
    torch = library.torch
    modes, compiler, casts = library.modes, library.compiler, library.autocasts
    layers, scripts = torch._C._functorch.peek_interpreter_stack, torch._C._get_tracing_state
    forwards, graphs = library.forwards, torch.compiler

    def is_watched() -> bool:
        if modes() or compiler() or layers() or casts() or scripts():
            return True
        return bool(
            forwards._current_level >= 0 or graphs._is_compiling_flag
        )  # what `is_compiling` returns, by two calls

    return is_watched


_doors: dict[type, Door | None] = {np.ndarray: None}


def _door_for(array: Any) -> Door | None:
    kind, library = type(array), library_of(array)
    if library is None or type(library) is Torch:
        _doors[kind] = None if library is None else Door(library)
    return _doors.get(kind)


def crossed_at_once(function: F) -> F:
    """Let a function take tensors as NumPy's arrays; all that it does is to check arrays and to call one op."""
    return _crossed(function, Replay(function))


def crossed_looking(look: Look, *seen: str) -> Callable[[F], F]:
    """Do that for a function that looks at the values of some options, as loops that `look` returns do."""
    return lambda function: _crossed(function, Replay(function, seen, look))


def _crossed(function: F, replay: Replay) -> F:
    names = _positional(function)

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            if options and len(args) < len(names) and names[len(args)] in options:
                args = _place(names, args, options)
            for x in args:
                kind = type(x)
                if kind is np.ndarray:
                    break
                door = _doors[kind] if kind in _doors else _door_for(x)
                if door is not None:
                    if door.is_watched() or not x.is_cpu or (options and _is_reference(options.get("backend"))):
                        break
                    result = _cross(door, x, replay, args, options)
                    if result is NotImplemented:
                        break
                    return result
            return function(*args, **options)
        except TypeError as error:
            tell_keyword(function, error)
            _tell_order(function, names, args, options.get("state"))
            raise

    return call  # type: ignore[return-value]


def _tell_order(function: Callable[..., Any], names: tuple[str, ...], args: tuple[Any, ...], named: Any) -> None:
    """Raise where a state, which comes first, is given elsewhere or not at all: the error at hand blames another."""
    if names[:1] != ("state",) or not args or args[0] is None or _is_state(args[0]):
        return
    if len(args) < len(names) or any(x is None or _is_state(x) for x in args[1:]) or _is_state(named):
        kinds = ", ".join(type(x).__name__ for x in args)
        raise DTypeError(f"{function.__name__}({', '.join(names)}) takes the state first; got ({kinds})") from None


def _is_state(x: Any) -> bool:
    return isinstance(x, tuple) and hasattr(x, "_fields")


def _is_reference(backend: Any) -> bool:
    """Whether a backend that nobody has checked is the reference: to ask what is no string may raise anything."""
    return isinstance(backend, str) and backend == "reference"


def _positional(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the arguments that have a place."""
    parameters = signature(function).parameters.values()
    return tuple(x.name for x in parameters if x.kind is x.POSITIONAL_OR_KEYWORD)


def _place(names: tuple[str, ...], args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
    """Return arguments with those that were given by name in their places, and take these from `options`."""
    placed = list(args)
    while len(placed) < len(names) and names[len(placed)] in options:
        placed.append(options.pop(names[len(placed)]))
    return tuple(placed)


def _cross(door: Door, first: Any, replay: Replay, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Call a function with tensors lent as arrays; NotImplemented where they cannot be lent, or are refused."""
    narrow = first.dtype is door.bfloat16
    watched = first.requires_grad
    if not watched:
        try:
            result = door.replay(replay, args, options, narrow)
        except (CannotLend, Extreme, KernattnError):
            return NotImplemented
        if result is not NotImplemented:
            return result
    differentiated = watched and door.library.gradients()
    lend = door.lend_detached if differentiated else door.library.lend if narrow or watched else None
    own: Own | None = {} if options or differentiated else None  # without options, no argument is returned
    try:
        lent, named = door.lend_all(args, lend, own), {}
        if options:
            named = dict(zip(options, door.lend_all(options.values(), lend, own), strict=True))
    except (CannotLend, RuntimeError, TypeError):
        return NotImplemented
    call = call_of(lent, named, door.maps, replay.by_form)
    try:
        if differentiated:
            return edge("torch").call_recorded(door, own, replay, call, lent, named, narrow)
        if call is None:
            result = NotImplemented
        elif (known := replay.recall(call)) is not None:
            result = known.code(known.run, call.arrays, known.constants, as_it_is)
        else:
            result = replay.note_call(call, lent, named, None)
        if result is NotImplemented:
            result = replay.function(*lent, **named)
        return door.give_back(result, narrow, own)
    except (CannotLend, Extreme, KernattnError):  # it shall say what it was given
        return NotImplemented
