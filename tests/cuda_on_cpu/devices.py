"""Two devices for the stand-in, their streams, and copies from the host that land late.

What a stream was given to copy is there for its own work, and for that of others once somebody has waited for the
stream: until then they read NaN. Kernels and functions take arrays of the current device only.
"""

from __future__ import annotations

import threading
from typing import Any
from weakref import ref

import numpy as np

COUNT = 2


class Device:
    """One of the devices, the current one unless its number is given; entered, it is the current one."""

    def __init__(self, device: Any = None) -> None:
        self.id: int = current.device if device is None else getattr(device, "id", device)
        if self.id not in range(COUNT):
            raise RuntimeError("cudaErrorInvalidDevice: invalid device ordinal")

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return self.id

    def __enter__(self) -> Device:
        current.entered.append(current.device)
        current.device = self.id
        return self

    def __exit__(self, *_: object) -> None:
        current.device = current.entered.pop()

    def use(self) -> None:
        current.device = self.id


class Copy:
    """Values on their way to an array."""

    def __init__(self, to: np.ndarray, values: np.ndarray) -> None:
        self._to, self._values = ref(to), values

    def show(self) -> None:
        if (to := self._to()) is not None:
            to[...] = self._values

    def hide(self) -> None:
        if (to := self._to()) is not None:
            self._values = to.copy()
            poison(to)


def poison(array: np.ndarray) -> None:
    """Make all of an array NaN."""
    array.reshape(-1).view(np.uint8)[...] = 0xFF


class Graph:
    """What a stream captured: here it has run already."""

    def launch(self, stream: Stream | None = None) -> None:
        """Nothing."""


class Stream:
    """A stream of the current device."""

    def __init__(self, *, null: bool = False, non_blocking: bool = False) -> None:
        self.device_id = current.device
        self._capturing = False
        self._queued: list[Copy] = []  # not there yet
        self._shown: list[Copy] = []  # there for this stream's work
        self._before: list[Stream] = []

    def __enter__(self) -> Stream:
        self._before.append(current.streams[self.device_id])
        current.streams[self.device_id] = self
        return self

    def __exit__(self, *_: object) -> None:
        current.streams[self.device_id] = self._before.pop()

    def is_capturing(self) -> bool:
        return self._capturing

    def begin_capture(self) -> None:
        self._capturing = True

    def end_capture(self) -> Graph:
        self._capturing = False
        return Graph()

    def copy(self, to: np.ndarray, values: np.ndarray) -> None:
        """Queue a copy from the host."""
        if self._capturing:
            raise RuntimeError("a copy from the host in a capture: its source is gone when the graph runs")
        self._queued.append(Copy(to, values))

    def work(self) -> None:
        """Make memory what the next work on this stream finds: its own copies, not those of others."""
        if current.working is not self:
            if current.working is not None:
                for copy in current.working._shown:
                    copy.hide()
                current.working._queued[:0] = current.working._shown
                current.working._shown.clear()
            current.working = self
        for copy in self._queued:
            copy.show()
        self._shown += self._queued
        self._queued.clear()

    def synchronize(self) -> None:
        if self._capturing:
            raise RuntimeError("cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing")
        for copy in self._queued:
            copy.show()
        self._queued.clear()
        self._shown.clear()


class _Current(threading.local):
    """What a thread has entered."""

    def __init__(self) -> None:
        self.device = 0
        self.entered: list[int] = []
        self.working: Stream | None = None
        self._streams: dict[int, Stream] | None = None

    @property
    def streams(self) -> dict[int, Stream]:
        """The current stream of every device."""
        if self._streams is None:
            self._streams = dict(enumerate(NULL))
        return self._streams


def stream() -> Stream:
    """Return the current stream of the current device."""
    return current.streams[current.device]


current = _Current()
NULL: list[Stream] = []
for _device in range(COUNT):
    with Device(_device):
        NULL.append(Stream(null=True))
