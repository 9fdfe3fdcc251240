"""The kernel `countsketch` on the emulation against the sums as written."""

import numpy as np
import pytest

from cuda_ops.cases import DTYPES, array, to64


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("room", [232_448, 0])
def test_countsketch(cupy, device_with, dtype, room):
    from kernattn.ops.countsketch.gpu import countsketch

    device_with(room)
    rng = np.random.default_rng(0)
    n, d, copies, buckets = 20, 37, 3, 11
    x = array(cupy, rng.normal(size=(2, n, d)), dtype)
    index, weight = rng.integers(0, buckets, size=(copies, d)), rng.choice([-1.0, 1.0], size=(copies, d))
    wanted = np.zeros((2, n, copies, buckets))
    for i in range(copies):
        for j in range(d):
            wanted[..., i, index[i, j]] += weight[i, j] * to64(x)[..., j]
    out = countsketch(x, index, weight, buckets)
    assert out.dtype == ("float64" if dtype == "float64" else "float32")
    np.testing.assert_allclose(to64(out), wanted, atol=1e-12 if dtype == "float64" else 1e-5)
    room = cupy.zeros((2, n, copies, buckets), dtype=out.dtype) + 7
    assert countsketch(x, index, weight, buckets, room) is room
    np.testing.assert_allclose(to64(room), to64(out), atol=1e-6)
