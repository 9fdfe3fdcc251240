"""A module that stands in for cupy in the tests: arrays of a class of its own, kernels on the emulation.

Functions are NumPy's, between unwrapping and wrapping. Like cupy's, the arrays refuse to become NumPy arrays by
themselves. `fake()` makes a fresh module, of a device with the capability of an H200 but few multiprocessors.
"""

from __future__ import annotations

import functools
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from cuda_on_cpu.module import RawModule

METHODS = (
    "reshape",
    "view",
    "copy",
    "astype",
    "transpose",
    "sum",
    "max",
    "min",
    "mean",
    "any",
    "all",
    "ravel",
    "squeeze",
    "fill",
)
PLAIN = ("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides", "flags")


class Device:
    """The one device there is."""

    id = 0

    def __init__(self, device: Any = 0) -> None:
        if getattr(device, "id", device) != 0:
            raise RuntimeError("cudaErrorInvalidDevice: invalid device ordinal")

    def __repr__(self) -> str:
        return "<CUDA Device 0>"

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of the stand-in."""

    __slots__ = ("__weakref__", "_host")
    __hash__ = None

    def __init__(self, host: np.ndarray) -> None:
        self._host = host

    def get(self) -> np.ndarray:
        return self._host.copy()

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self._host.ctypes.data)

    @property
    def device(self) -> Any:
        return Device()

    @property
    def T(self) -> ndarray:
        return ndarray(self._host.T)

    def item(self) -> Any:
        return self._host.item()

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        if any(isinstance(x, np.ndarray) and x.ndim > 0 for x in inputs):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        return wrap(getattr(ufunc, method)(*unwrap(inputs), **unwrap(keywords)))

    def __getitem__(self, key: Any) -> ndarray:
        return ndarray(np.asarray(self._host[unwrap(key)]))

    def __setitem__(self, key: Any, value: Any) -> None:
        self._host[unwrap(key)] = unwrap(value)

    def __len__(self) -> int:
        return len(self._host)

    def __bool__(self) -> bool:
        return bool(self._host)

    def __float__(self) -> float:
        return float(self._host)

    def __int__(self) -> int:
        return int(self._host)

    def __repr__(self) -> str:
        return repr(self._host)


for _name in PLAIN:
    setattr(ndarray, _name, property(lambda self, name=_name: getattr(self._host, name)))
for _name in METHODS:
    setattr(ndarray, _name, lambda self, *a, name=_name, **k: wrap(getattr(self._host, name)(*unwrap(a), **unwrap(k))))
ndarray.__module__ = "cupy"


def unwrap(x: Any) -> Any:
    """NumPy arrays in place of the stand-in's, however deep."""
    if isinstance(x, ndarray):
        return x._host
    if isinstance(x, (tuple, list)):
        return type(x)(unwrap(y) for y in x)
    if isinstance(x, dict):
        return {key: unwrap(y) for key, y in x.items()}
    return x


def wrap(x: Any) -> Any:
    """The stand-in's arrays in place of NumPy's; scalars become arrays without axes, as cupy's are."""
    if isinstance(x, (np.ndarray, np.generic)):
        return ndarray(np.asarray(x))
    if type(x) in (tuple, list):
        return type(x)(wrap(y) for y in x)
    if hasattr(x, "_fields"):  # a named tuple
        return type(x)(*map(wrap, x))
    return x


def _lift(function: Any) -> Any:
    @functools.wraps(function, updated=())
    def lifted(*arguments: Any, **keywords: Any) -> Any:
        return wrap(function(*unwrap(arguments), **unwrap(keywords)))

    return lifted


def _module(name: str, like: ModuleType) -> ModuleType:
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    module.__all__ = [n for n in getattr(like, "__all__", dir(like)) if not n.startswith("_")]
    for n in module.__all__:
        value = getattr(like, n)
        lifts = callable(value) and not isinstance(value, type)
        module.__dict__[n] = _lift(value) if lifts else value
    return module


def _poison(shape: Any, dtype: Any = float, **_: Any) -> ndarray:
    array = np.empty(shape, dtype=dtype)
    array.reshape(-1).view(np.uint8)[...] = 0xFF
    return ndarray(array)


def fake(*, capability: str = "90", shared_bytes: int = 232448, multiprocessors: int = 4) -> dict[str, ModuleType]:
    """Return the modules to put into sys.modules."""
    cupy = _module("cupy", np)
    cupy.linalg, cupy.fft = _module("cupy.linalg", np.linalg), _module("cupy.fft", np.fft)
    cupy.__version__ = "14.2.0"
    cupy.ndarray = ndarray
    cupy.RawModule = RawModule
    cupy.empty = _poison
    cupy.empty_like = lambda a, dtype=None: _poison(a.shape, dtype or a.dtype)
    cupy.ascontiguousarray = lambda a: a if a.flags.c_contiguous else wrap(np.ascontiguousarray(unwrap(a)))

    attributes = {"MaxSharedMemoryPerBlockOptin": shared_bytes, "MultiProcessorCount": multiprocessors}
    device = type("Device", (Device,), {"compute_capability": capability, "attributes": attributes})

    cuda = ModuleType("cupy.cuda")
    cuda.__spec__ = ModuleSpec("cupy.cuda", None)
    cuda.Device = device
    cuda.is_available = lambda: True
    cuda.device = ModuleType("cupy.cuda.device")
    cuda.device.Device = device
    cupy.cuda = cuda
    return {
        "cupy": cupy,
        "cupy.cuda": cuda,
        "cupy.cuda.device": cuda.device,
        "cupy.linalg": cupy.linalg,
        "cupy.fft": cupy.fft,
    }
