"""16-bit floats in compiled loops: each is widened and rounded as NumPy and ml_dtypes do, and no array is copied."""

import tracemalloc

import ml_dtypes
import numpy as np
import pytest

import kernattn as ka
from kernattn.ops._numba.codegen.halves import BFLOAT16, FLOAT16, narrow_all, widen_all

HALVES = {BFLOAT16: ml_dtypes.bfloat16, FLOAT16: np.float16}


@pytest.mark.parametrize("kind", HALVES)
def test_every_pattern_widens(kind):
    bits = np.arange(1 << 16, dtype=np.uint16)
    bits.setflags(write=False)
    found = np.empty(bits.size, np.float32)
    widen_all(bits, kind, found)
    with np.errstate(invalid="ignore"):
        wanted = bits.view(HALVES[kind]).astype(np.float32)
    nan = np.isnan(wanted)
    np.testing.assert_array_equal(found[~nan].view(np.uint32), wanted[~nan].view(np.uint32))
    assert np.isnan(found[nan]).all()


@pytest.mark.parametrize("kind", HALVES)
def test_every_number_tie_and_neighbour_rounds(kind):
    rng = np.random.default_rng(0)
    dtype = HALVES[kind]
    with np.errstate(invalid="ignore"):
        numbers = np.unique(np.arange(1 << 16, dtype=np.uint16).view(dtype).astype(np.float32))
    numbers = numbers[np.isfinite(numbers)]
    ties = ((numbers[1:].astype(np.float64) + numbers[:-1]) / 2).astype(np.float32)
    near = [np.nextafter(ties, np.float32(end)) for end in (np.inf, -np.inf)]
    anything = rng.integers(0, 1 << 32, 100_003, np.uint32).view(np.float32)
    x = np.concatenate([numbers, ties, *near, anything, np.float32([np.inf, -np.inf, -0.0, 65519, 65520, 3.4e38])])
    nan, largest = np.isnan(x), float(ml_dtypes.finfo(dtype).max)
    for held in (True, False):
        found = np.empty(x.size, dtype)
        narrow_all(x, found.view(np.uint16), kind, held)
        with np.errstate(invalid="ignore", over="ignore"):
            wanted = (np.where(np.isinf(x), x, np.clip(x, -largest, largest)) if held else x).astype(dtype)
        np.testing.assert_array_equal(found[~nan].view(np.uint16), wanted[~nan].view(np.uint16))
        assert np.isnan(found[nan].astype(np.float32)).all()


def _causal(phi):
    def run(q, k, v, mask):
        out, state = ka.causal_linear_attention(q[..., :-1, :], k[..., :-1, :], v[..., :-1, :], phi)
        last = ka.linear_attention_step(state, q[..., -1, :], k[..., -1, :], v[..., -1, :], phi)[0]
        return out, last, ka.linear_attention(q, k, v, phi, key_mask=mask), state.s

    return run


def _gated(q, k, v, mask):
    g, beta = -np.abs(k[..., 0].astype(np.float32)), np.abs(np.tanh(v[..., 0].astype(np.float32)))
    whole, state = ka.gated_linear_attention(q, k, v, g=g, beta=beta, key_mask=mask, l2_normalise=True)
    last, _ = ka.gated_linear_attention_step(
        state, q[..., 0, :], k[..., 0, :], v[..., 0, :], g=g[..., 0], beta=beta[..., 0]
    )
    return whole, last, state.s


@pytest.mark.parametrize("dtype", HALVES.values(), ids=["bfloat16", "float16"])
@pytest.mark.parametrize("lay", [lambda x: x, lambda x: x.swapaxes(1, 2)], ids=["heads first", "tokens first"])
@pytest.mark.parametrize("attend", ["elu1", "favor", "gated"])
def test_bits_are_those_of_rounded_outputs_of_widened_inputs(attend, lay, dtype):
    rng = np.random.default_rng(0)
    q, k, v = (lay(np.ascontiguousarray(lay(rng.standard_normal((2, 3, 133, e))).astype(dtype))) for e in (7, 7, 21))
    mask = rng.random((2, 3, 133)) < 0.8
    maps = {"elu1": ka.features.elu1(), "favor": ka.random_features(ka.kernels.Softmax(), 7, 24, rng=0)}
    run = _causal(maps[attend]) if attend in maps else _gated
    for found, wide in zip(run(q, k, v, mask), run(*(x.astype(np.float32) for x in (q, k, v)), mask), strict=True):
        assert found.dtype in (dtype, np.float32)
        np.testing.assert_array_equal(found, wide.astype(found.dtype))


@pytest.mark.parametrize("dtype", HALVES.values(), ids=["bfloat16", "float16"])
def test_a_call_takes_no_more_memory_than_one_of_float32(dtype):
    rows, phi = [np.ones((4, 2000, 32), np.float32)] * 3, ka.features.elu1()

    def peak(x):
        call = {
            "causal": lambda: ka.causal_linear_attention(*x, phi),
            "full": lambda: ka.linear_attention(*x, phi),
            "gated": lambda: ka.gated_linear_attention(*x, l2_normalise=True),
        }
        found = {}
        for name, each in call.items():
            each()
            tracemalloc.start()
            each()
            found[name] = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        return found

    half, whole = peak([x.astype(dtype) for x in rows]), peak(rows)
    assert all(half[name] < 0.75 * whole[name] for name in whole)
