"""Parts of loops, which compiled code alone calls: typed and lowered apart, made machine code inside their loops only.

Numba takes every function for a program of its own: optimised with all that it calls, turned into machine code, kept on
disk, and all that once more for constants among its arguments. Of a part that is lost. So is the count of who looks at
an array: what a part is given lives as long as it runs, and an atomic addition is as long as twenty others. Those parts
count alone that make arrays, or call one that does.
"""

import gc
from typing import Any

from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher

MAKERS = {"array", "empty", "full", "zeros"}
"""Names of what returns an array of its own."""


class _Library(JITCodeLibrary):  # type: ignore[misc]
    """Code that waits until it is linked into a loop."""

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    @property
    def codegen(self) -> Any:
        return self

    def set_env(self, name, environment) -> None:
        """Parts have no machine code that could look at Python's objects."""


class PartCompiler(Compiler):  # type: ignore[misc]
    """Compiles a function as far as a part needs; the collector would find nothing in what it makes meanwhile."""

    def compile_extra(self, func):
        self.state.library = _Library(self.state.targetctx.codegen(), func.__qualname__)
        collects = gc.isenabled()
        gc.disable()
        try:
            return super().compile_extra(func)
        finally:
            if collects:
                gc.enable()


class Part(CPUDispatcher):  # type: ignore[misc]
    """A function that compiled code calls, compiled once for the types of its arguments, whatever they are."""

    def __init__(self, part, **options) -> None:
        self.makes_arrays = makes_arrays(part)
        options |= {"nopython": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": self.makes_arrays}
        super().__init__(part, targetoptions=options, pipeline_class=PartCompiler)

    def compile(self, sig) -> Any:
        known = self.overloads.get(sig) if isinstance(sig, tuple) else None  # Numba looks behind its lock
        return super().compile(sig) if known is None else known.entry_point

    def get_call_template(self, args, kws):
        return super().get_call_template([types.unliteral(kind) for kind in args], kws)

    def __call__(self, *given) -> Any:
        raise TypeError(f"{self.__name__} is a part of loops: compiled code alone calls it")


def makes_arrays(function) -> bool:
    """Does a function make arrays, or call a part that stands above it and does? Numba refuses to without a count."""
    names, known = function.__code__.co_names + function.__code__.co_freevars, function.__globals__
    parts = (part for name in names if isinstance(part := known.get(name), Part))
    return not MAKERS.isdisjoint(names) or any(part.makes_arrays for part in parts)
