"""A step in place, into `out`, on the emulation: nothing is allocated, so that a CUDA graph could capture it."""

import gc

import numpy as np
import pytest

import kernattn as ka
import laws
from cuda_on_cpu import RawModule
from cuda_ops.cases import array, to64
from kernattn.ops._cuda import runtime
from kernattn.ops.step import gpu

PHI = ka.random_features(ka.kernels.Softmax(), 6, 40, rng=0)


@pytest.fixture
def allocated(cupy, monkeypatch):
    """Arrays of the device that were made: those that own their memory."""
    made = []
    plain = cupy.ndarray.__init__

    def counting(self, host, device=None):
        plain(self, host, device)
        if host.base is None:
            made.append(host.shape)

    monkeypatch.setattr(cupy.ndarray, "__init__", counting)
    return made


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("group", [(), (3,)])
def test_a_step_in_place_allocates_nothing(cupy, allocated, dtype, group):
    rng = np.random.default_rng(0)
    shared = (1,) if group else ()
    shapes = ((2, *group, 6), (2, *shared, 6), (2, *shared, 5))
    tokens = [[array(cupy, rng.normal(size=shape), dtype) for shape in shapes] for _ in range(4)]
    lead = tokens[0][1].shape[:-1]
    mask = cupy.asarray(np.ones(lead, bool))
    plain = held = ka.initial_state(PHI, lead, 5, like=tokens[0][0])
    held = held._replace(**{name: getattr(held, name).copy() for name in ("s", "z", "peak")})
    out = cupy.empty((2, *group, 5), dtype=tokens[0][2].dtype)
    for t, token in enumerate(tokens):
        wanted, plain = ka.linear_attention_step(plain, *token, PHI, key_mask=mask)
        allocated.clear()
        got, held = ka.linear_attention_step(held, *token, PHI, key_mask=mask, out=out, reuse_state=True)
        assert bool(allocated) == (t == 0), allocated
        assert got is out
        laws.close(to64(out), to64(wanted), 0, "out")
        laws.close(held.s, plain.s, 0, "s")


def test_without_out_the_counter_counts(cupy, allocated):
    x = cupy.asarray(np.ones((2, 6), np.float32))
    state = ka.initial_state(PHI, (2,), 6, like=x)
    for _ in range(2):
        allocated.clear()
        _, state = ka.linear_attention_step(state, x, x, x, PHI, reuse_state=True)
    assert allocated == [(2, 6)]


def test_the_driver_is_asked_once(cupy, monkeypatch):
    """For the functions of a module and for a device's limits: later steps only launch."""
    asked = []

    class Attributes(dict):
        def __getitem__(self, name):
            asked.append(name)
            return super().__getitem__(name)

    def get_function(module, name, found=RawModule.get_function):
        asked.append(name)
        return found(module, name)

    runtime._function.cache_clear()
    monkeypatch.setattr(cupy.cuda.Device, "attributes", Attributes(cupy.cuda.Device.attributes))
    monkeypatch.setattr(RawModule, "get_function", get_function)
    x = cupy.asarray(np.ones((2, 6), np.float32))
    state = ka.initial_state(PHI, (2,), 6, like=x)
    for wanted in (["MaxSharedMemoryPerBlockOptin", "MultiProcessorCount", "prepare", "stream"], [], []):
        _, state = ka.linear_attention_step(state, x, x, x, PHI, reuse_state=True)
        assert sorted(asked) == wanted
        asked.clear()


def test_the_room_of_a_state_goes_with_it(cupy):
    x = cupy.asarray(np.ones((2, 6), np.float32))
    state = ka.initial_state(PHI, (2,), 6, like=x)
    before = len(gpu._between)
    _, state = ka.linear_attention_step(state, x, x, x, PHI, reuse_state=True)
    assert len(gpu._between) == before + 1
    _, other = ka.linear_attention_step(state, x, x, x, PHI)
    assert len(gpu._between) == before + 1
    del state, other
    gc.collect()
    assert len(gpu._between) == before
