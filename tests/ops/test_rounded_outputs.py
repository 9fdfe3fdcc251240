"""Pullbacks of outputs that were rounded to 16 bits: of the exact gradient, they lose what rounding it loses alone."""

import ml_dtypes
import numpy as np
import pytest

import kernattn as ka

SOFTMAX = ka.kernels.Softmax()
MAPS = {
    "elu1": ka.features.elu1(),
    "favor": ka.random_features(SOFTMAX, 8, 32, "positive", projection="orthogonal", rng=3),
    "trigonometric": ka.random_features(SOFTMAX, 8, 32, "trigonometric", projection="orthogonal", rng=3),
}
HALVES = {"bfloat16": np.dtype(ml_dtypes.bfloat16), "float16": np.dtype("f2")}
CALLS = {"full": ka.linear_attention, "causal": ka.causal_linear_attention}
MOST = 1.05
"""Times the error of rounding."""


def drawn(dtype, scale, n=65):
    rng = np.random.default_rng(0)
    sizes = ((8, scale), (8, scale), (5, 1), (5, 1))
    return [(factor * rng.standard_normal((2, n, width))).astype(dtype) for width, factor in sizes]


def by_numpy(name, phi, q, k, v, g, **kwargs):
    found, pull = ka.vjp(CALLS[name], q, k, v, phi, **kwargs)
    cotangents = pull((g, None) if isinstance(found, tuple) else g)
    return cotangents.q, cotangents.k, cotangents.v


def by_torch(name, phi, *arrays):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, arrays[0].dtype.name)
    q, k, v, g = (torch.tensor(x.astype("f4")).to(dtype) for x in arrays)
    rows = [x.requires_grad_() for x in (q, k, v)]
    found = CALLS[name](*rows, phi)
    (found[0] if isinstance(found, tuple) else found).backward(g)
    return [x.grad.float().numpy() for x in rows]


def errors(found, wanted, dtype):
    """Return the rms errors over those of rounding."""
    pairs = [(np.asarray(x, "f8") - y, y.astype(dtype).astype("f8") - y) for x, y in zip(found, wanted, strict=True)]
    return [np.sqrt(np.mean(x**2) / np.mean(y**2)) for x, y in pairs]


@pytest.mark.parametrize("dtype", HALVES.values(), ids=HALVES)
@pytest.mark.parametrize("scale", [1.0, 0.1])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("phi", MAPS.values(), ids=MAPS)
def test_the_error_is_that_of_rounding(phi, name, scale, dtype):
    rows = drawn(dtype, scale)
    wanted = by_numpy(name, phi, *(x.astype("f8") for x in rows), backend="reference")
    ways = [by_numpy(name, phi, *rows), by_torch(name, phi, *rows)]
    ways.append(by_numpy(name, phi, *rows, backend="reference"))
    for found in ways:
        assert max(errors(found, wanted, dtype)) < MOST


@pytest.mark.parametrize("phi", MAPS.values(), ids=MAPS)
def test_masks_segments_and_shared_heads(phi):
    dtype = HALVES["bfloat16"]
    q, k, v, g = drawn(dtype, 0.5, n=75)
    given = np.stack([q, q[::-1]]), k, v, np.stack([g, g[::-1]])
    rest = {"key_mask": np.arange(75) % 5 > 0, "segment_ids": np.arange(75) // 30}
    wanted = by_numpy("causal", phi, *(x.astype("f8") for x in given), backend="reference", **rest)
    assert max(errors(by_numpy("causal", phi, *given, **rest), wanted, dtype)) < MOST
