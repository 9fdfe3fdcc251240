"""The call surface of ``cupy.RawModule`` over libraries built by g++."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from cuda_on_cpu.build import build

THREADS = 1 if "PYTEST_XDIST_WORKER" in os.environ else min(2, os.cpu_count() or 1)
MAX_THREADS_PER_BLOCK = 1024
MAX_GRID = (2**31 - 1, 65535, 65535)


class KernelError(RuntimeError):
    """A launch that a GPU would refuse, hang on, or run with undefined results."""


class _Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_ulonglong),
        ("seed", ctypes.c_ulonglong),
        ("threads", ctypes.c_int),
    )


class RawModule:
    """Compiled when a function is first asked for. ``seed`` shuffles threads and blocks; 0 keeps them in order."""

    seed = 1
    sanitize = os.environ.get("CUDA_ON_CPU_SANITIZE") == "1"

    def __init__(self, *, code: str, options: Sequence[str] = (), sanitize: bool = sanitize) -> None:
        self._code = code
        self._defines = tuple(option for option in options if option.startswith(("-D", "-U")))
        self._sanitize = sanitize
        self._library: ctypes.CDLL | None = None

    def get_function(self, name: str) -> Function:
        if self._library is None:
            self._library = ctypes.CDLL(str(build(self._code, self._defines, self._sanitize)))
        return Function(self._library, name)


class Function:
    """One kernel: ``function(grid, block, args, shared_mem=bytes)``."""

    def __init__(self, library: ctypes.CDLL, name: str) -> None:
        self.name = name
        self.max_dynamic_shared_size_bytes = 48 * 1024
        self._launch = getattr(library, f"cuda_on_cpu_launch_{name}")
        sizes = (ctypes.c_uint * 64)()
        count = getattr(library, f"cuda_on_cpu_arguments_{name}")(sizes)
        self._sizes = list(sizes[:count])

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], *, shared_mem: int = 0, stream: Any = None
    ) -> None:
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise KernelError(
                f"{self.name}: {shared_mem} B of shared memory, {self.max_dynamic_shared_size_bytes} allowed"
            )
        large = int(np.prod(block)) > MAX_THREADS_PER_BLOCK or any(a > b for a, b in zip(grid, MAX_GRID, strict=False))
        if large or min(*grid, *block, 1) < 1:
            raise KernelError(f"{self.name}: grid {tuple(grid)} of blocks {tuple(block)} cannot be launched")
        values = [_argument(arg) for arg in args]
        sizes = [value.nbytes for value in values]
        if sizes != self._sizes:
            raise KernelError(f"{self.name}: arguments of {sizes} bytes given, the kernel takes {self._sizes}")
        pointers = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
        how = _Launch(_three(grid), _three(block), shared_mem, RawModule.seed, THREADS)
        text = ctypes.create_string_buffer(512)
        if self._launch(pointers, ctypes.byref(how), text, len(text)) != 0:
            raise KernelError(f"{self.name}: {text.value.decode()}")


def _three(sizes: Sequence[int]) -> Any:
    return (ctypes.c_uint * 3)(*sizes, *([1] * (3 - len(sizes))))


def _argument(value: Any) -> np.ndarray:
    """The bytes that a launch passes: arrays as pointers, NumPy scalars and Python numbers by value."""
    if isinstance(value, np.ndarray) or (hasattr(value, "data") and hasattr(value.data, "ptr")):
        if not value.flags.c_contiguous:
            raise KernelError("a kernel sees no strides: the array given is not contiguous")
        return np.array([value.ctypes.data if isinstance(value, np.ndarray) else value.data.ptr], np.uint64)
    if isinstance(value, (np.generic, bool, int, float)):
        return np.array([value])
    raise KernelError(f"{type(value).__name__} cannot be passed to a kernel")
