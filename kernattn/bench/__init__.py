"""Benchmarks: each op against its floor and against every peer that can be imported, in alternation, in one process.

What needs Numba is imported when it is first used: the races on a GPU, in `kernattn.bench.gpu`, do without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernattn.bench.start import start

if TYPE_CHECKING:
    from kernattn.bench.cases import CASES, Options
    from kernattn.bench.run import bench, scaling

__all__ = ["CASES", "Options", "bench", "scaling", "start"]

_HOMES = {"CASES": "cases", "Options": "cases", "bench": "run", "scaling": "run"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kernattn.bench' has no attribute {name!r}")
    value = getattr(import_module(f"kernattn.bench.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
