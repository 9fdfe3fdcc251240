"""What edges do for the core: one table, which `kernattn._edges` fills above all rooms.

The core asks for an edge where it meets an array that the edge's library watches: one that is differentiated, traced or
transformed. An edge is a module with

- ``hand_over(library, name, backend, arguments)``: what an op makes of arguments that cannot be lent to a compiled
  loop, or NotImplemented where array operations of the reference are to do it;
- ``run_hosted(function, *arrays)``: what a function that runs on the host makes of arrays, by its own rule of
  derivatives;
- for PyTorch, ``keep_map(phi)`` and ``keep_plan(plan)``, which let graphs name what they hold no more of.

Where PyTorch makes a graph, the core asks for "graphs": a module with the functions that `torch.compile` traces in
place of public ones, by their names. It loads the compiler, which takes seconds.
"""

from collections.abc import Callable
from typing import Any

EDGES: dict[str, Callable[[], Any]] = {}
"""How to load the edge of a library, by the library's name."""


LOADED: dict[str, Any] = {}
"""The edges that were asked for."""


def edge(library: str) -> Any:
    """Return the edge of a library, loaded when it is first asked for."""
    if library not in LOADED:
        LOADED[library] = EDGES[library]()
    return LOADED[library]
