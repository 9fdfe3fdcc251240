"""The clock of CuPy's current stream, and passes captured in graphs."""

from __future__ import annotations

import sys
from math import inf
from typing import Any

from kernattn.bench._clock import Call


class EventClock:
    """Seconds between events of the device."""

    turn = 5e-3
    long = inf

    def settle(self, call: Call) -> None:
        """Let the contestant have the memory that the libraries keep for themselves, and run it once."""
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
        if "torch" in sys.modules:
            sys.modules["torch"].cuda.empty_cache()
        call()

    def mark(self) -> Any:
        """Record an event."""
        import cupy

        event = cupy.cuda.Event()
        event.record()
        return event

    def seconds(self, start: Any, stop: Any) -> float:
        """Wait for the second event."""
        import cupy

        stop.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, stop)) / 1e3


def captured(work: Call) -> Call:
    """Capture what a pass launches in a CUDA graph; return the pass that replays it. It must have run before."""
    import cupy

    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        work()
        stream.synchronize()
        stream.begin_capture()
        work()
        graph = stream.end_capture()
    return lambda: graph.launch(cupy.cuda.get_current_stream())
