"""A module that stands in for cupy in the tests: NumPy arrays of a class of their own, kernels on the emulation.

Whatever is not named here is NumPy's. `fake()` makes a fresh one, of a device with the limits of an H200 unless told otherwise.
"""

from __future__ import annotations

from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from cuda_on_cpu.module import RawModule


class ndarray(np.ndarray):  # noqa: N801
    """A NumPy array that only the stand-in makes and takes."""

    def get(self) -> np.ndarray:
        return np.array(self.view(np.ndarray))

    @property
    def device(self) -> str:
        return "cuda:0"


ndarray.__module__ = "cupy"


def _device(x: Any) -> Any:
    if isinstance(x, np.ndarray) and not isinstance(x, ndarray):
        return x.view(ndarray)
    return x


def _poison(shape: Any, dtype: Any = float, **_: Any) -> ndarray:
    array = np.empty(shape, dtype=dtype)
    array.reshape(-1).view(np.uint8)[...] = 0xFF
    return array.view(ndarray)


def fake(*, capability: str = "90", shared_bytes: int = 232448, multiprocessors: int = 4) -> dict[str, ModuleType]:
    """Return the modules to put into sys.modules."""
    cupy = ModuleType("cupy")
    cupy.__spec__ = ModuleSpec("cupy", None)
    cupy.__version__ = "14.2.0"
    cupy.__all__ = [name for name in np.__all__ if not name.startswith("_")]
    cupy.__getattr__ = lambda name: getattr(np, name)  # type: ignore[method-assign]
    cupy.ndarray = ndarray
    cupy.RawModule = RawModule
    cupy.empty = _poison
    cupy.empty_like = lambda a: _poison(a.shape, a.dtype)
    cupy.ascontiguousarray = lambda a: a if a.flags.c_contiguous else _device(np.ascontiguousarray(a))
    for name in ("asarray", "array", "zeros", "ones", "full", "arange", "concatenate", "cumsum"):
        cupy.__dict__[name] = (lambda function: lambda *a, **k: _device(function(*a, **_on_host(k))))(getattr(np, name))

    class Device:
        id = 0
        compute_capability = capability
        attributes = {"MaxSharedMemoryPerBlockOptin": shared_bytes, "MultiProcessorCount": multiprocessors}

        def __init__(self, device: int = 0) -> None:
            assert device == 0

    cuda = ModuleType("cupy.cuda")
    cuda.__spec__ = ModuleSpec("cupy.cuda", None)
    cuda.Device = Device
    cuda.is_available = lambda: True
    cuda.runtime = SimpleNamespace(getDeviceCount=lambda: 1)
    cupy.cuda = cuda
    return {"cupy": cupy, "cupy.cuda": cuda}


def _on_host(keywords: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in keywords.items() if name not in ("device", "blocking")}
