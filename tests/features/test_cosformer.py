"""cosFormer's map: relu features times cosines of distances; the laws of every map are tested elsewhere."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import ParameterError, ShapeError
from laws import arrays
from refusals import refused
from xp import to_numpy


def tokens(n, dtype="float64"):
    q, k, v = arrays(1, (2, n, 3), (2, n, 3), (2, n, 2), dtype=dtype)
    position = np.broadcast_to(np.arange(n, dtype=dtype)[:, None], (2, n, 1))
    return np.concatenate([q, position], axis=-1), np.concatenate([k, position], axis=-1), v


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attention(causal, dtype):
    n = 37
    q, k, v = tokens(n, dtype)
    far = np.arange(n)[:, None] - np.arange(n)
    x, y = (np.maximum(to_numpy(rows)[..., :3], 0) for rows in (q, k))
    weights = x @ np.swapaxes(y, -1, -2) * np.cos(np.pi * far / (2 * n)) * (np.tri(n) if causal else 1)
    total = weights.sum(axis=-1, keepdims=True)
    wanted = np.where(total > 0, weights @ to_numpy(v) / np.where(total > 0, total, 1), 0)
    phi = ka.features.cosformer(n)
    out = ka.causal_linear_attention(q, k, v, phi)[0] if causal else ka.linear_attention(q, k, v, phi)
    np.testing.assert_allclose(out, wanted, rtol=2e-5 if dtype == "float32" else 1e-11, atol=1e-6)


def test_only_distances_count():
    q, k, v = tokens(9)
    out = ka.linear_attention(q, k, v, ka.features.cosformer(9))
    for x in (q, k):
        x[..., -1] += 1000.0
    np.testing.assert_allclose(ka.linear_attention(q, k, v, ka.features.cosformer(9)), out, rtol=1e-10)


def test_bad_input_is_refused():
    with refused(ParameterError, "length", "0"):
        ka.features.cosformer(0)
    with refused(ShapeError, "position", "d = 1"):
        ka.features.cosformer(4)(np.ones((3, 1)))
