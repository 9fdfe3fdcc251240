"""Calls on arrays of 16 bits take no more memory than those on float32: no array is widened or rounded as a whole."""

import tracemalloc

import ml_dtypes
import numpy as np
import pytest

import kernattn as ka
from kernattn.ops.causal_conv.cpu import causal_conv

HALVES = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype("f2")}
N, D, WINDOW, LANDMARKS = 2048, 32, 32, 8
ELU1 = ka.features.elu1()
POSITIVE = ka.random_features(ka.kernels.Softmax(), D, 64, "positive", rng=0)
SKETCH = ka.random_features(ka.kernels.Polynomial(2), D, 256, "tensor_sketch", rng=0)
BEHIND, AROUND = ka.patterns.local(WINDOW, 0), ka.patterns.local(WINDOW, WINDOW)
APART = ka.patterns.local(4, 4, dilation=2)
MIXTURES = np.random.default_rng(1).standard_normal((LANDMARKS, N)).astype(np.float32) / N
BLOCKS = np.random.default_rng(2).standard_normal((4, D, D)).astype(np.float32) / D
CENTROIDS = np.random.default_rng(3).standard_normal((1, LANDMARKS, D)).astype(np.float32)
near_and_far = ka.attention.scatterbrain_attention

WRITTEN, ADDED = 0.75, 1.02
"""Outputs that are written with 16 bits at once, and those to which something is added, in float32."""

FORWARD = {
    "full": (WRITTEN, lambda q, k, v: ka.linear_attention(q, k, v, ELU1)),
    "causal": (WRITTEN, lambda q, k, v: ka.causal_linear_attention(q, k, v, ELU1)),
    "exact": (WRITTEN, ka.softmax_attention),
    "gated": (WRITTEN, lambda q, k, v: ka.gated_linear_attention(q, k, v, gk=-abs(q), l2_normalise=True)),
    "features": (WRITTEN, lambda q, k, v: POSITIVE(q)),
    "sketch": (0.85, lambda q, k, v: SKETCH(q)),
    "kernel": (WRITTEN, lambda q, k, v: ka.kernels.Gaussian()(q[0])),
    "convolution": (WRITTEN, lambda q, k, v: causal_conv(q, np.ones((D, 4), np.float32), None, True, None)),
    "near and far, causal": (ADDED, lambda q, k, v: near_and_far(q, k, v, ELU1, BEHIND, causal=True)),
    "near and far": (ADDED, lambda q, k, v: near_and_far(q, k, v, ELU1, AROUND)),
    "near and far, taken off": (ADDED, lambda q, k, v: near_and_far(q, k, v, ELU1, APART)),
    "window": (ADDED, lambda q, k, v: ka.attention.window_attention(q, k, v, ELU1, WINDOW)),
    "gaussian weights": (ADDED, lambda q, k, v: ka.kernel_attention(q, k, v, ka.kernels.Gaussian(8.0))),
    "weights": (ADDED, lambda q, k, v: ka.kernel_attention(q[:, :64], k, v, ka.kernels.Cauchy(8.0))),
    "linformer": (WRITTEN, lambda q, k, v: ka.attention.linformer_attention(q, k, v, *[MIXTURES.astype(q.dtype)] * 2)),
    "nystrom": (WRITTEN, lambda q, k, v: ka.attention.nystrom_attention(q, k, v, num_landmarks=LANDMARKS)),
    "routing": (ADDED, lambda q, k, v: ka.attention.routing_attention(q, k, v, CENTROIDS, window=2 * N // LANDMARKS)),
    "compressed": (
        ADDED,
        lambda q, k, v: ka.attention.compressed_attention(
            q, k, v, factor=4, weights_k=BLOCKS.astype(q.dtype), weights_v=BLOCKS.astype(q.dtype)
        ),
    ),
}
BACK = {
    "full": (WRITTEN, lambda q, k, v: ka.vjp(ka.linear_attention, q, k, v, ELU1)),
    "causal": (WRITTEN, lambda q, k, v: ka.vjp(ka.causal_linear_attention, q, k, v, ELU1)),
    "exact": (ADDED, lambda q, k, v: ka.vjp(ka.softmax_attention, q, k, v)),
    "gated": (WRITTEN, lambda q, k, v: ka.vjp(ka.gated_linear_attention, q, k, v, gk=-abs(q), l2_normalise=True)),
    "features": (ADDED, lambda q, k, v: ka.vjp(POSITIVE, q)),
    "near and far, causal": (ADDED, lambda q, k, v: ka.vjp(near_and_far, q, k, v, ELU1, BEHIND, causal=True)),
    "near and far": (ADDED, lambda q, k, v: ka.vjp(near_and_far, q, k, v, POSITIVE, AROUND)),
    "window": (ADDED, lambda q, k, v: ka.vjp(ka.attention.window_attention, q, k, v, POSITIVE, WINDOW)),
}


def rows(dtype):
    return np.random.default_rng(0).standard_normal((3, 2, N, D)).astype(dtype)


def pullback(begin, dtype):
    out, pull = begin(*rows(dtype))
    cotangent = (np.ones_like(out[0]), None) if isinstance(out, tuple) else np.ones_like(out)
    return lambda: pull(cotangent)


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch):
    monkeypatch.setenv("KERNATTN_NUM_THREADS", "1")  # each has rooms of its own


def peak(call, *given):
    call(*given)
    tracemalloc.start()
    try:
        call(*given)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", FORWARD)
def test_a_call_takes_no_more_memory_than_one_of_float32(name):
    limit, run = FORWARD[name]
    whole = peak(run, *rows("f4"))
    for dtype in HALVES.values():
        assert peak(run, *rows(dtype)) <= limit * whole


@pytest.mark.parametrize("name", BACK)
def test_the_way_back_takes_no_more_memory_than_that_of_float32(name):
    limit, begin = BACK[name]
    whole = peak(pullback(begin, "f4"))
    for dtype in HALVES.values():
        assert peak(pullback(begin, dtype)) <= limit * whole
