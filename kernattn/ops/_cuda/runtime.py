"""The current device: its limits, kernels compiled for it, launches on its stream."""

from dataclasses import dataclass
from functools import cache
from typing import Any

from kernattn.errors import BackendUnavailable, ShapeError
from kernattn.ops._cuda import cupy, sources

GRID = (2**31 - 1, 65_535)  # most blocks along x and y


@dataclass(frozen=True)
class Limits:
    """The limits of a device that launches depend on."""

    capability: int  # 90 for 9.0
    shared_bytes: int  # that one block may ask for
    multiprocessors: int

    @property
    def roomy(self) -> bool:
        """Does a block have the shared memory of the data-centre devices?"""
        return self.shared_bytes >= 160_000


def limits() -> Limits:
    """Return the limits of the current device."""
    return _limits(int(cupy.cuda.Device().id))


@cache
def _limits(device: int) -> Limits:
    handle = cupy.cuda.Device(device)
    attributes = handle.attributes
    return Limits(
        int(handle.compute_capability), attributes["MaxSharedMemoryPerBlockOptin"], attributes["MultiProcessorCount"]
    )


@cache
def _module(device: int, op: str, defines: tuple[str, ...]) -> Any:
    return cupy.RawModule(code=sources.source(op), options=defines)


@cache
def _function(device: int, op: str, name: str, defines: tuple[str, ...]) -> Any:
    function = _module(device, op, defines).get_function(name)
    function.max_dynamic_shared_size_bytes = _limits(device).shared_bytes
    return function


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel."""

    defines: tuple[str, ...]  # the compiler's options
    grid: tuple[int, ...]
    threads: int
    shared_bytes: int

    def start(self, op: str, name: str, *arguments: Any) -> None:
        """Launch the kernel `name` of an op, compiled for the current device, on its stream; nothing waits for it."""
        _check(self.grid, self.shared_bytes)
        function = _function(int(cupy.cuda.Device().id), op, name, self.defines)
        function(self.grid, (self.threads,), arguments, shared_mem=self.shared_bytes)


def _check(grid: tuple[int, ...], shared_bytes: int) -> None:
    """Refuse what the current device cannot launch."""
    if any(size > most for size, most in zip(grid, GRID, strict=False)):
        raise ShapeError(f"CUDA takes at most {GRID} blocks, this call needs {grid}: fewer rows, entries or features")
    offered = limits().shared_bytes
    if shared_bytes > offered:
        raise BackendUnavailable(
            f"a block of this kernel needs {shared_bytes} bytes of shared memory; this device offers {offered}"
        )
