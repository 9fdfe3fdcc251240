"""Which implementation of an op runs: a table of op x backend, and the rule that reads it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.util import find_spec
from typing import Any

import array_api_compat as compat
import numpy as np

from kernattn._arrays.bridge import CannotLend, Library, library_of
from kernattn._arrays.device import on_its_device
from kernattn._arrays.namespaces import Array
from kernattn._arrays.plain import on_plain
from kernattn._arrays.replay import Witness
from kernattn._runtime.checks import shown
from kernattn._runtime.fork import import_whole
from kernattn.errors import BackendUnavailable, ParameterError

BACKENDS = ("reference", "cpu", "gpu")


@cache
def missing(backend: str) -> str | None:
    """Return why `backend` cannot run on this machine, or None where it can."""
    if backend == "cpu" and find_spec("numba") is None:
        return "numba is not installed (pip install 'kernattn[cpu]')"
    if backend == "gpu":
        if find_spec("cupy") is None:
            return "cupy is not installed"
        if not import_whole("cupy").cuda.is_available():
            return "cupy finds no CUDA device"
    return None


def check_backend(backend: object) -> None:
    """Raise unless there may be a backend of that name."""
    if backend is not None and (not isinstance(backend, str) or backend not in BACKENDS):
        raise ParameterError(f"backend must be None or one of {', '.join(BACKENDS)}; got {shown(backend)}")


_WANTS = {
    "cpu": "NumPy arrays, and PyTorch's and JAX's in host memory",
    "gpu": "CuPy arrays, and PyTorch's CUDA tensors",
}


def _why_not(backend: str, array: Array) -> str | None:
    """Return why a backend does not take an array, or None where it does."""
    if backend == "reference" or (isinstance(array, np.ndarray) if backend == "cpu" else compat.is_cupy_array(array)):
        return None
    library = library_of(array)
    if library is None or library.backend != backend:
        return f"takes {_WANTS[backend]}; got {type(array).__module__}.{type(array).__name__}"
    try:
        library.check(array)
    except CannotLend as why:
        return _explain_kept(array, why)
    return None


def _explain_kept(array: Array, why: object) -> str:
    return f"cannot take a {type(array).__module__}.{type(array).__name__}: {why}; backend='reference' takes it"


@dataclass(frozen=True)
class Op:
    """An op, and the backends that have an implementation of it: kernattn.ops.<name>.<backend>.<name>."""

    name: str
    backends: tuple[str, ...]

    def choose(self, array: Array, backend: str | None = None) -> str:
        """Return the backend that runs on `array`: the one asked for, or else the fastest that can."""
        if backend is None:
            for compiled in self.backends:
                if compiled != "reference" and _why_not(compiled, array) is None and missing(compiled) is None:
                    return compiled
            return "reference"
        check_backend(backend)
        if backend not in self.backends:
            raise BackendUnavailable(
                f"backend {backend!r} has no {self.name} op; there is one for {', '.join(self.backends)}"
            )
        reason = missing(backend)
        if reason is not None:
            raise BackendUnavailable(f"backend {backend!r} cannot run {self.name} here: {reason}")
        unfit = _why_not(backend, array)
        if unfit is not None:
            raise BackendUnavailable(f"backend {backend!r} {unfit}")
        return backend

    def implementation(self, array: Array, backend: str | Witness | None = None) -> Callable[..., Any]:
        """Return the implementation that `choose` names; it takes arrays of the library of `array`, where they are."""
        if isinstance(backend, Witness):
            return backend.implementation(self)
        if isinstance(array, np.ndarray):
            chosen = self.choose(array, backend)
            return _on_plain(self.function(chosen)) if chosen == "reference" else self.function(chosen)
        check_backend(backend)
        library = library_of(array)
        if library is None or backend == "reference" or not self.can_lend(library, backend):
            function = self.function(self.choose(array, backend))
            if library is not None:
                return library.uncast(function, array)
            return on_its_device(function) if compat.is_cupy_array(array) else function
        return partial(self._run_lent, library, array, backend)

    def can_lend(self, library: Library, backend: str | None) -> bool:
        """Whether the op may run on what a library lends."""
        return backend in (None, library.backend) and library.backend in self.backends and not missing(library.backend)

    def _run_lent(self, library: Library, like: Array, backend: str | None, *arguments: Any) -> Any:
        """Return the op's outputs for arrays lent to it; where one is kept, those of the edge or of the reference."""
        try:
            return library.call(self.function(library.backend), like, arguments)
        except CannotLend as kept:
            why = str(kept)  # of the exception itself, whose frames hold the arrays, nothing is kept
        result = library.hand_over(self.name, backend, arguments)
        if result is not NotImplemented:
            return result
        if backend is not None:
            raise BackendUnavailable(f"backend {backend!r} {_explain_kept(like, why)}")
        return library.uncast(self.function("reference"), like)(*arguments)

    def function(self, backend: str) -> Callable[..., Any]:
        """Return the implementation of one backend."""
        return _load(self.name, backend)


@dataclass(frozen=True)
class Composed(Op):
    """Two ops as one, so that arrays cross once: second(first(...), ...), with the first's `count` arguments first.

    Backends in `short` have a way of their own, kernattn.ops.<second>.short, which returns None where that is longer.
    """

    first: Op
    count: int
    second: Op
    short: tuple[str, ...] = ()

    def function(self, backend: str) -> Callable[..., Any]:
        """Return the implementation of one backend."""
        both = _compose(_load(self.first.name, backend), self.count, _load(self.second.name, backend))
        return _first_that_can(_short(self.second.name), both) if backend in self.short else both


@dataclass(frozen=True)
class Around(Op):
    """Array operations around other ops: a function that takes first what finds their implementations."""

    run: Callable[..., Any]

    def function(self, backend: str) -> Callable[..., Any]:
        """Return the implementation of one backend: the same operations, around the ops of that backend."""
        return partial(self.run, _WAYS[backend])


def _function_of(backend: str, op: Op, like: Array) -> Callable[..., Any]:
    return op.function(backend)


_WAYS = {backend: partial(_function_of, backend) for backend in BACKENDS}

_on_plain = cache(on_plain)


@cache
def _compose(first: Callable[..., Any], count: int, second: Callable[..., Any]) -> Callable[..., Any]:
    def both(*given: Any) -> Any:
        return second(first(*given[:count]), *given[count:])

    return both


@cache
def _short(name: str) -> Callable[..., Any]:
    function: Callable[..., Any] = import_whole(f"kernattn.ops.{name}.short").short
    return function


@cache
def _first_that_can(short: Callable[..., Any], both: Callable[..., Any]) -> Callable[..., Any]:
    def either(*given: Any) -> Any:
        result = short(*given)
        return both(*given) if result is None else result

    return either


@cache
def _load(name: str, backend: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(import_whole(f"kernattn.ops.{name}.{backend}"), name)
    return function
