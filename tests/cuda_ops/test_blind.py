"""Causal rows keep every bit whatever comes after them, and where the sequence ends there."""

import numpy as np
import pytest

from covering import turns
from cuda_ops.cases import KINDS, array, assert_close, specs, to64
from kernattn.ops.block_softmax.gpu import block_softmax
from kernattn.ops.causal.gpu import causal
from oracles import allowed
from seam import CAUSAL

CASES = [(kind, "float32") for kind in KINDS if kind != "elu1"] + [("sincos", "bfloat16"), ("exp", "float64")]
N = 150


def problem(cupy, kind, dtype, scale=1.0):
    rng = np.random.default_rng(11)
    spec = specs(rng, kind, 5, 37)
    host = [rng.normal(size=(2, N, c)) * s for c, s in ((5, scale), (5, scale), (7, 1.0))]
    return spec, [array(cupy, x, dtype) for x in host], rng.random((2, N)) < 0.8


def run(spec, q, k, v, mask=None):
    return causal(q, k, v, spec, spec, None, mask, None, False)[0]


@pytest.mark.parametrize(("kind", "dtype", "tiles"), turns(CASES, [1, 100]))  # several slabs, and one
def test_blind_to_the_future(cupy, slab_tiles, kind, dtype, tiles):
    slab_tiles(tiles)
    spec, (q, k, v), mask = problem(cupy, kind, dtype)
    mask = cupy.asarray(mask)
    before = run(spec, q, k, v, mask)
    for t, growth in ((20, 1.0), (40, 30.0), (70, 1e-3), (100, 1e4), (100, np.nan)):
        late = [x.copy() for x in (q, k, v)]
        for x, factor in zip(late, (-growth, growth, growth), strict=True):
            x[:, t + 1 :] = x[:, t + 1 :][:, ::-1] * cupy.asarray(np.asarray(factor, x.dtype))
        after = run(spec, *late, mask)
        np.testing.assert_array_equal(to64(after[:, : t + 1]), to64(before[:, : t + 1]), err_msg=f"{t} {growth}")


@pytest.mark.parametrize("kind", ["exp", "sincos", "relu"])
@pytest.mark.parametrize("n", [1, 63, 64, 100, 149])
def test_where_the_sequence_ends(cupy, slab_tiles, kind, n):
    slab_tiles(100)
    spec, inputs, _ = problem(cupy, kind, "float32")
    np.testing.assert_array_equal(to64(run(spec, *(x[:, :n] for x in inputs))), to64(run(spec, *inputs)[:, :n]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_chunks_end_before_keys_that_lie_far_above(cupy, dtype):
    """Every key of a hundred times its predecessors' size, and back: rows before a jump are themselves, and right."""
    spec, (q, k, v), _ = problem(cupy, "exp_pair" if dtype == "float32" else "exp", dtype)
    size = np.where(np.arange(N) % 23 < 3, 100.0, 0.1)[:, None]
    k = k * cupy.asarray(size.astype(k.dtype))
    before = run(spec, q, k, v)
    assert_close(before, q, k, v, spec, dtype, allowed(N, N, causal=True))
    for t in (22, 23, 45, 47, 70):
        late = k.copy()
        late[:, t + 1 :] = late[:, t + 1 :] * cupy.asarray(np.asarray(-7.0, k.dtype))
        np.testing.assert_array_equal(to64(run(spec, q, late, v)[:, : t + 1]), to64(before[:, : t + 1]))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_exact_attention_is_blind_too(cupy, dtype):
    _, (q, k, v), mask = problem(cupy, "relu", dtype)
    mask = cupy.asarray(mask)
    before = block_softmax(q, k, v, 0.5, CAUSAL, mask)
    for t in (10, 70, 130):
        late = [x.copy() for x in (q, k, v)]
        for x in late:
            x[:, t + 1 :] = x[:, t + 1 :] * cupy.asarray(np.asarray(-30.0, x.dtype))
        for a, b in zip(block_softmax(*late, 0.5, CAUSAL, mask), before, strict=True):
            np.testing.assert_array_equal(to64(a[:, : t + 1]), to64(b[:, : t + 1]))
