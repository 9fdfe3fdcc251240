"""A module that stands in for cupy in the tests: arrays of a class of its own, kernels on the emulation.

Functions are NumPy's, between unwrapping and wrapping. Like cupy's, the arrays refuse to become NumPy arrays by
themselves, belong to a device, and may be read by another stream before they land (devices.py). `fake()` makes a fresh
module, of devices with the capability of an H200 but few multiprocessors.
"""

from __future__ import annotations

import functools
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from cuda_on_cpu.devices import Device, Stream, current, poison, stream
from cuda_on_cpu.module import KernelError, RawModule

VIEWS = ("reshape", "view", "transpose", "ravel", "squeeze")
METHODS = (
    "copy",
    "astype",
    "sum",
    "max",
    "min",
    "mean",
    "any",
    "all",
    "fill",
)
PLAIN = ("shape", "dtype", "ndim", "size", "nbytes", "itemsize", "strides", "flags")


class ndarray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of the stand-in."""

    __slots__ = ("__weakref__", "_device", "_host")
    __hash__ = None

    def __init__(self, host: np.ndarray, device: int | None = None) -> None:
        self._host = host
        self._device = current.device if device is None else device

    def get(self) -> np.ndarray:
        with self.device:
            host = unwrap(self).copy()
            stream().synchronize()
            return host

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self._host.ctypes.data, device_id=self._device)

    @property
    def device(self) -> Any:
        return Device(self._device)

    @property
    def T(self) -> ndarray:
        return ndarray(self._host.T, self._device)

    def item(self) -> Any:
        return self.get().item()

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()`")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **keywords: Any) -> Any:
        if any(isinstance(x, np.ndarray) and x.ndim > 0 for x in inputs):
            raise TypeError("Unsupported type <class 'numpy.ndarray'>")
        return wrap(getattr(ufunc, method)(*unwrap(inputs), **unwrap(keywords)))

    def __getitem__(self, key: Any) -> ndarray:
        return ndarray(np.asarray(self._host[unwrap(key)]), self._device)

    def __setitem__(self, key: Any, value: Any) -> None:
        unwrap(self)[unwrap(key)] = unwrap(value)

    def __len__(self) -> int:
        return len(self._host)

    def __bool__(self) -> bool:
        return bool(self.get())

    def __float__(self) -> float:
        return float(self.get())

    def __int__(self) -> int:
        return int(self.get())

    def __repr__(self) -> str:
        return repr(self._host)


for _name in PLAIN:
    setattr(ndarray, _name, property(lambda self, name=_name: getattr(self._host, name)))


def _view(name: str) -> Any:
    return lambda self, *a, **k: ndarray(getattr(self._host, name)(*a, **k), self._device)


def _method(name: str) -> Any:
    return lambda self, *a, **k: wrap(getattr(unwrap(self), name)(*unwrap(a), **unwrap(k)))


for _name in VIEWS:
    setattr(ndarray, _name, _view(_name))
for _name in METHODS:
    setattr(ndarray, _name, _method(_name))
ndarray.__module__ = "cupy"


def unwrap(x: Any) -> Any:
    """NumPy arrays in place of the stand-in's, however deep, for work on the current stream."""
    if isinstance(x, ndarray):
        if x._device != current.device:
            raise ValueError(f"an array of device {x._device} on device {current.device}")
        stream().work()
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


@functools.cache
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


def _asarray(x: Any, dtype: Any = None, *, blocking: bool = False, **_: Any) -> ndarray:
    if isinstance(x, ndarray):
        return x if dtype is None or x.dtype == dtype else x.astype(dtype)
    host = np.array(x, dtype=dtype)
    if host.size == 0 or not isinstance(x, np.ndarray):
        return ndarray(host)
    array = _poison(host.shape, host.dtype)
    stream().copy(array._host, host)
    if blocking:
        stream().synchronize()
    return array


class _Module(RawModule):
    """Kernels on the current stream of the current device."""

    def get_function(self, name: str) -> Any:
        return _Function(super().get_function(name))


class _Function:
    def __init__(self, function: Any) -> None:
        object.__setattr__(self, "_function", function)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._function, name, value)

    def __call__(self, grid: Any, block: Any, args: Any, **keywords: Any) -> None:
        away = {x._device for x in args if isinstance(x, ndarray)} - {current.device}
        if away:
            raise KernelError(f"{self.name}: arrays of device {away.pop()} in a launch on device {current.device}")
        stream().work()
        self._function(grid, block, args, **keywords)


def _poison(shape: Any, dtype: Any = float, **_: Any) -> ndarray:
    array = np.empty(shape, dtype=dtype)
    poison(array)
    return ndarray(array)


def fake(*, capability: str = "90", shared_bytes: int = 232448, multiprocessors: int = 4) -> dict[str, ModuleType]:
    """Return the modules to put into sys.modules."""
    cupy = _module("cupy", np)
    cupy.linalg, cupy.fft = _module("cupy.linalg", np.linalg), _module("cupy.fft", np.fft)
    cupy.__version__ = "14.2.0"
    cupy.ndarray = ndarray
    cupy.RawModule = _Module
    cupy.asarray = cupy.array = _asarray
    cupy.empty = _poison
    cupy.empty_like = lambda a, dtype=None: _poison(a.shape, dtype or a.dtype)
    cupy.ascontiguousarray = lambda a: a if a.flags.c_contiguous else wrap(np.ascontiguousarray(unwrap(a)))

    attributes = {"MaxSharedMemoryPerBlockOptin": shared_bytes, "MultiProcessorCount": multiprocessors}
    device = type("Device", (Device,), {"compute_capability": capability, "attributes": attributes})

    cuda = ModuleType("cupy.cuda")
    cuda.__spec__ = ModuleSpec("cupy.cuda", None)
    cuda.Device = device
    cuda.Stream = Stream
    cuda.get_current_stream = stream
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
