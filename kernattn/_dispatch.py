"""Which implementation of an op runs: a table of op x backend, and the rule that reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import array_api_compat as compat
import numpy as np

from kernattn._array import Array
from kernattn._device import where_its_arrays_are
from kernattn._fork import imported
from kernattn.errors import BackendUnavailable, ParameterError

__all__ = ["BACKENDS", "Op", "missing"]

BACKENDS = ("reference", "cpu", "gpu")


@cache
def missing(backend: str) -> str | None:
    """Return why `backend` cannot run on this machine, or None where it can."""
    if backend == "cpu" and find_spec("numba") is None:
        return "numba is not installed (pip install 'kernattn[cpu]')"
    if backend == "gpu":
        if find_spec("cupy") is None:
            return "cupy is not installed"
        if not imported("cupy").cuda.is_available():
            return "cupy finds no CUDA device"
    return None


def _suits(backend: str, array: Array) -> bool:
    if backend == "cpu":
        return isinstance(array, np.ndarray)
    return backend == "reference" or compat.is_cupy_array(array)


_WANTS = {"reference": "any array", "cpu": "NumPy arrays", "gpu": "CuPy arrays"}


@dataclass(frozen=True)
class Op:
    """An op, and the backends that have an implementation of it: kernattn.ops.<name>.<backend>.<name>."""

    name: str
    backends: tuple[str, ...]

    def choose(self, array: Array, backend: str | None = None) -> str:
        """Return the backend that runs on `array`: the one asked for, or else the fastest that can."""
        if backend is None:
            for compiled in self.backends:
                if compiled != "reference" and _suits(compiled, array) and missing(compiled) is None:
                    return compiled
            return "reference"
        if backend not in BACKENDS:
            raise ParameterError(f"backend must be None or one of {', '.join(BACKENDS)}; got {backend!r}")
        if backend not in self.backends:
            raise BackendUnavailable(
                f"backend {backend!r} has no {self.name} op; there is one for {', '.join(self.backends)}"
            )
        reason = missing(backend)
        if reason is not None:
            raise BackendUnavailable(f"backend {backend!r} cannot run {self.name} here: {reason}")
        if not _suits(backend, array):
            raise BackendUnavailable(
                f"backend {backend!r} takes {_WANTS[backend]}; got {type(array).__module__}.{type(array).__name__}"
            )
        return backend

    def implementation(self, array: Array, backend: str | None = None) -> Callable[..., Any]:
        """Return the implementation that `choose` names; CuPy's arrays it takes on their own device."""
        function = _load(self.name, self.choose(array, backend))
        return where_its_arrays_are(function) if compat.is_cupy_array(array) else function


@cache
def _load(name: str, backend: str) -> Callable[..., Any]:
    function: Callable[..., Any] = getattr(imported(f"kernattn.ops.{name}.{backend}"), name)
    return function
