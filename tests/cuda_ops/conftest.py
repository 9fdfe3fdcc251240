"""A stand-in for cupy on the emulation, so that backend="gpu" runs from the public API down."""

import sys

import pytest

from cuda_on_cpu import gxx
from cuda_on_cpu.cupy_stand_in import fake
from kernattn._arrays import device as _device
from kernattn._arrays import namespaces as _array
from kernattn.ops import dispatch as _dispatch
from kernattn.ops._cuda import constants, linear, plans, runtime, sketches


@pytest.fixture
def cupy(monkeypatch):
    """The stand-in, in place of cupy wherever it is imported."""
    if gxx() is None:
        pytest.skip("the emulation builds with g++, which is not on PATH")
    for name in [
        name for name in sys.modules if name.split(".")[0] == "cupy" or name.startswith("array_api_compat.cupy")
    ]:
        monkeypatch.delitem(sys.modules, name)
    modules = fake()
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    forget()
    yield modules["cupy"]
    forget()
    for name in [name for name in sys.modules if name.startswith("array_api_compat.cupy")]:
        del sys.modules[name]


@pytest.fixture
def slab_tiles(monkeypatch):
    """How many tiles of rows a slab has: of one, short inputs have several slabs."""
    return lambda tiles: monkeypatch.setattr(linear, "SLAB_TILES", tiles)


@pytest.fixture
def device_with(monkeypatch):
    """A device of so many bytes of shared memory, in place of the stand-in's; what it says of itself."""

    def set_limits(shared_bytes, arch=90):
        limits = runtime.Limits(arch, shared_bytes, 1)
        monkeypatch.setattr(runtime, "limits", lambda: limits)
        return limits

    return set_limits


@pytest.fixture
def one_multiprocessor(device_with):
    """A device whose blocks have as many columns as there are."""
    return device_with(232_448)


def forget():
    """Drop whatever was remembered of the other cupy."""
    _dispatch.missing.cache_clear()
    _array._namespaces.clear()
    _device.on_its_device.cache_clear()
    runtime._limits.cache_clear()
    constants._constants.clear()
    constants._uploaded.clear()
    sketches._lists.clear()
    plans._levels.clear()
