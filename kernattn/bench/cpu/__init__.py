"""Races on the CPU: compiled loops against torch, scikit-learn and packages of attention, on as many threads.

Its parts are imported when they are asked for: the cases can be listed without Numba.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernattn._runtime.fork import imported as _imported

if TYPE_CHECKING:
    from kernattn.bench.cpu._clock import HostClock
    from kernattn.bench.cpu._device import DEVICE
    from kernattn.bench.cpu._generate.races import GENERATION, generation
    from kernattn.bench.cpu._page import make_page
    from kernattn.bench.cpu._scaling import SCALING, scaling, scaling_figure
    from kernattn.bench.cpu._scaling_backward import SCALING_BACKWARD, scaling_backward, scaling_backward_figure
    from kernattn.bench.cpu._start import START, start
    from kernattn.bench.cpu._stream import STREAM, stream

__all__ = [
    "DEVICE",
    "GENERATION",
    "SCALING",
    "SCALING_BACKWARD",
    "START",
    "STREAM",
    "HostClock",
    "generation",
    "make_page",
    "scaling",
    "scaling_backward",
    "scaling_backward_figure",
    "scaling_figure",
    "start",
    "stream",
]

_HOMES = (
    {"DEVICE": "_device", "HostClock": "_clock", "make_page": "_page"}
    | dict.fromkeys(("GENERATION", "generation"), "_generate.races")
    | dict.fromkeys(("SCALING", "scaling", "scaling_figure"), "_scaling")
    | dict.fromkeys(("SCALING_BACKWARD", "scaling_backward", "scaling_backward_figure"), "_scaling_backward")
    | dict.fromkeys(("START", "start"), "_start")
    | dict.fromkeys(("STREAM", "stream"), "_stream")
)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'kernattn.bench.cpu' has no attribute {name!r}")
    value = getattr(_imported(f"kernattn.bench.cpu.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
