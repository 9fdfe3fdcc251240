"""Short causal convolutions, of sequences and token by token, against sums over taps written out."""

import numpy as np
import pytest

from kernattn.ops import OPS
from xp import backends, numpy_dtype

BACKENDS = pytest.mark.parametrize(  # those of NumPy's arrays
    "backend", [x for x in backends("causal_conv", "causal_conv_step") if x.name != "gpu"]
)
CLOSE = {"float64": 1e-13, "float32": 1e-6, "float16": 1e-3}


def by_hand(x, weight, bias, silu, segment_ids):
    """Sum over taps that stand within the token's run, in float64."""
    (n, channels), taps = x.shape, weight.shape[1]
    y = np.zeros((n, channels)) if bias is None else np.tile(bias.astype(float), (n, 1))
    for t in range(n):
        for j in range(taps):
            s = t - taps + 1 + j
            if s >= 0 and (segment_ids is None or np.all(segment_ids[s : t + 1] == segment_ids[t])):
                y[t] += weight[:, j].astype(float) * x[s]
    return y / (1 + np.exp(-y)) if silu else y


def inputs(n, channels, taps, biased, dtype):
    rng = np.random.default_rng(n + channels)
    x, weight = rng.standard_normal((2, n, channels)), rng.standard_normal((channels, taps))
    bias = rng.standard_normal(channels) if biased else None
    return [None if y is None else y.astype(numpy_dtype(dtype)) for y in (x, weight, bias)]


@BACKENDS
@pytest.mark.parametrize(
    ("n", "channels", "taps", "biased", "silu", "segmented", "dtype"),
    [
        (9, 600, 4, True, True, False, "float32"),
        (9, 5, 4, False, True, True, "float64"),
        (2, 5, 4, True, False, False, "float64"),
        (1, 5, 4, False, False, True, "float64"),
        (9, 5, 1, True, True, True, "float64"),
        (40, 33, 3, True, True, False, "float16"),
    ],
)
def test_every_token_sums_its_taps(backend, n, channels, taps, biased, silu, segmented, dtype):
    x, weight, bias = inputs(n, channels, taps, biased, dtype)
    ids = np.repeat([3, 1, 3, 2], [4, 1, 2, n])[:n] if segmented else None
    out = OPS["causal_conv"].implementation(x, backend.name)(x, weight, bias, silu, ids)
    assert out.dtype == x.dtype
    for own, tokens in zip(out, x, strict=True):
        np.testing.assert_allclose(own, by_hand(tokens, weight, bias, silu, ids), rtol=0, atol=3 * CLOSE[dtype])
    if ids is None:  # token by token, by states of the taps but one and longer ones
        step = OPS["causal_conv_step"].implementation(x, backend.name)
        for length in (max(taps - 1, 1), taps + 1):
            state = np.zeros((2, channels, length), x.dtype)
            for t in range(n):
                token, state = step(state, x[:, t], weight, bias, silu)
                np.testing.assert_allclose(token, out[:, t], rtol=0, atol=3 * CLOSE[dtype])
            last = np.concatenate([np.zeros((2, length, channels), x.dtype), x], axis=1)[:, -length:]
            np.testing.assert_array_equal(state, last.swapaxes(1, 2))


@BACKENDS
def test_what_is_no_number_stays_in_its_channel_and_its_taps(backend):
    x, weight, bias = inputs(12, 3, 4, True, "float64")
    run = OPS["causal_conv"].implementation(x, backend.name)
    clean = run(x, weight, bias, True, None)
    x[1, 2, 1], x[1, 7, 0] = np.nan, -1e300
    out = run(x, weight, bias, True, None)
    touched = np.zeros(out.shape, bool)
    touched[1, 2:6, 1] = touched[1, 7:11, 0] = True
    assert np.isnan(out[1, 2:6, 1]).all()
    np.testing.assert_array_equal(out[~touched], clean[~touched])
