"""Tests on a device: CuPy itself, with memory that nobody wrote full of NaN."""

import pytest

from cuda_ops.conftest import device_with, slab_tiles
from cuda_ops.test_orthogonalize import room

__all__ = ["device_with", "room", "slab_tiles"]  # fixtures of the tests that are written for the emulation


@pytest.fixture(autouse=True)
def cupy(monkeypatch):
    """CuPy; what it keeps of the memory goes back after each test."""
    import cupy

    def poisoned(allocate):
        def full_of_nan(*args, **kwargs):
            array = allocate(*args, **kwargs)
            if array.nbytes:
                array.data.memset_async(0xFF, array.nbytes)
            return array

        return full_of_nan

    for name in ("empty", "empty_like"):
        monkeypatch.setattr(cupy, name, poisoned(getattr(cupy, name)))
    yield cupy
    cupy.cuda.get_current_stream().synchronize()
    cupy.get_default_memory_pool().free_all_blocks()


@pytest.fixture
def allocations(cupy):
    """A context that lists the bytes of every allocation on the device inside it."""

    class Listed(cupy.cuda.MemoryHook):
        name = "list of allocations"

        def __init__(self):
            self.sizes = []

        def malloc_preprocess(self, *, size, **_):
            self.sizes.append(size)

    return Listed


@pytest.fixture
def wait(cupy):
    """Keep the current stream busy for about a third of a second."""
    code = """
    extern "C" __global__ void wait(long long cycles) {
        const long long start = clock64();
        while (clock64() - start < cycles);
    }"""
    kernel = cupy.RawKernel(code, "wait")
    return lambda: kernel((1,), (1,), (500_000_000,))
