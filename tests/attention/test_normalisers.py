"""Normalisers of rows: what outputs were divided by, of signed maps too, and what outputs over parts merge by."""

import numpy as np
import pytest

import kernattn as ka
import laws
import maps

NAMES = ["elu1", "relu", "positive-ard", "hyperbolic-softmax", "trigonometric-ard", "phase-softmax", "polynomial"]
OTHERS = ["favor_sharp_asymmetric", "squared neurons", "sum"]


def inputs(dtype="float64", n=41):
    return laws.arrays(3, (2, 3, n, maps.DIM), (2, 1, n, maps.DIM), (2, 1, n, 3), dtype=dtype)


@pytest.mark.parametrize("name", NAMES + OTHERS)
def test_they_are_the_dense_ones(name, backend):
    phi, (q, k, v) = maps.make(name), inputs()
    mask, ids = np.random.default_rng(1).random(41) < 0.6, np.arange(41) // 15 % 2
    laws.normalisers_are_true(phi, q, k, v, backend, cut=17)
    laws.normalisers_are_true(phi, q, k, v, backend, cut=17, key_mask=mask)
    laws.normalisers_are_true(phi, q, k, v, backend, cut=17, key_mask=mask, segment_ids=ids)


@pytest.mark.parametrize("name", ["elu1", "positive-softmax", "trigonometric-softmax"])
def test_in_float32_and_where_nothing_is_seen(name, backend):
    phi, (q, k, v) = maps.make(name), inputs("float32")
    late = np.arange(41) >= 20
    laws.normalisers_are_true(phi, q, k, v, backend, cut=17, key_mask=late)  # the first part is empty
    _, (log, sign), _ = ka.attention.causal_with_lse(
        *map(backend.kind.asarray, (q, k, v)), phi, key_mask=backend.kind.asarray(late), backend=backend.name
    )
    assert str(log.dtype).endswith("float32")
    assert (np.asarray(log)[..., :20] == -np.inf).all()
    assert (np.asarray(sign)[..., :20] == 0).all()


def test_they_do_not_overflow(backend):
    """Rows of norm 400 have normalisers far beyond the range of float32, and their logarithm is told."""
    phi, (q, k, v) = maps.make("positive-softmax"), inputs("float32")
    big = [backend.kind.asarray(x) for x in (100 * q, 100 * k, v)]
    _, (log, sign), _ = ka.attention.causal_with_lse(*big, phi, backend=backend.name)
    wide = [x.astype("f8") for x in (100 * q, 100 * k, v)]
    _, (wanted, _), _ = ka.attention.causal_with_lse(*wide, phi, backend="reference")
    assert np.abs(wanted).max() > 1000
    np.testing.assert_allclose(np.asarray(log), wanted, rtol=1e-4, atol=1)
    assert (np.asarray(sign) == 1).all()
