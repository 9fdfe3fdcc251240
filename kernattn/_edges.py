"""Where the core meets frameworks: each edge is loaded when the first array of its library asks for it.

"states" is no framework: files of states may hold what a model remembers, whose classes are the transformer's.
"""

from __future__ import annotations

from types import ModuleType

from kernattn._arrays.hooks import EDGES
from kernattn._runtime.fork import importing


def _torch() -> ModuleType:
    with importing:
        from kernattn.torch import _edge
    return _edge


def _graphs() -> ModuleType:
    with importing:
        from kernattn.torch import _traced
    return _traced


def _jax() -> ModuleType:
    with importing:
        from kernattn.jax import _edge
    return _edge


def _states() -> ModuleType:
    with importing:
        from kernattn import transformer
    return transformer


EDGES.update(states=_states, torch=_torch, graphs=_graphs, jax=_jax)
