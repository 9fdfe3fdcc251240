"""Numba's passes over loops and their parts: its Python is much of the time of a first call.

Left out are passes that find nothing in such code, and an account of every pass that nobody reads: Numba writes down
the flags and the arguments of the function for each of some thirty. Types are found by going through all operations
again until none has a new one; what a call was seen to return is not looked for again among all that has the name.
"""

from typing import Any

from numba.core.compiler import Compiler
from numba.core.compiler_machinery import PassManager

NEEDLESS = {"InlineClosureLikes", "NopythonRewrites"}
"""They look for functions made in functions, and for operations on whole arrays to make one loop of."""


class _Passes(PassManager):  # type: ignore[misc]
    """Passes, one after the other."""

    def _runPass(self, index, pss, state) -> None:
        pss.analysis = self._analysis
        pss.run_initialization(state)
        pss.run_pass(state)
        pss.run_finalizer(state)


class _Calls:
    """What Numba knows of types, and the calls that one function was seen to make."""

    def __init__(self, context: Any) -> None:
        self._context: Any = context
        self._seen: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def resolve_function_type(self, function, args, kws) -> Any:
        """Return the signature that a function has for types of arguments."""
        call = function, tuple(args), tuple(dict(kws).items())
        if call not in self._seen:
            signature = self._context.resolve_function_type(function, args, kws)
            if signature is None:
                return None
            self._seen[call] = signature
        return self._seen[call]


class LoopCompiler(Compiler):  # type: ignore[misc]
    """Compiles a function by the passes that it needs."""

    def __init__(self, context, *others) -> None:
        super().__init__(context, *others)
        self.state.typingctx = _Calls(context)

    def define_pipelines(self):
        whole = super().define_pipelines()
        return [_without_needless(passes) for passes in whole]


def _without_needless(whole):
    """Return the passes of a manager but for those that find nothing in loops."""
    passes = _Passes(whole.pipeline_name)
    passes.passes = [each for each in whole.passes if each[0].__name__ not in NEEDLESS]
    passes.finalize()
    return passes
