"""Maps that are powers of their rows give the same attention at every size of them; factors of a map cancel."""

import numpy as np
import pytest

import kernattn as ka
from kernattn.ops.features import OP
from seam import MapSpec

D, M = 5, 12
DATA = np.random.default_rng(1).standard_normal((20, D))
HOMOGENEOUS = {
    "relu": ka.features.generalized("relu", D, M, rng=0),
    "square": ka.features.generalized("square", D, M, rng=0),
    "steps": ka.random_features(ka.kernels.ArcCosine(0), D, M, rng=0),
    "squared relu": ka.random_features(ka.kernels.ArcCosine(2), D, M, rng=0),
    "nystrom cubes": ka.features.nystrom(DATA, ka.kernels.Polynomial(3), 6, rng=0),
    "nystrom neurons": ka.features.nystrom(DATA, ka.kernels.ArcCosine(2), 6, rng=0),
    "tiny landmarks": ka.features.nystrom(1e-25 * DATA, ka.kernels.ArcCosine(2), 6, rng=0),
    "monomials": ka.features.polynomial(3),
    "small multiple": 1e-6 * ka.features.generalized("relu", D, M, rng=0),
    "tiny multiple": 1e-30 * ka.features.relu(),
    "huge multiple": 1e30 * (1e30 * ka.features.relu()),
}


def attention(q, k, v, phi, backend):
    out = ka.linear_attention(q, k, v, phi, backend=backend)
    causal, _ = ka.causal_linear_attention(q, k, v, phi, backend=backend)
    return np.stack([out, causal])


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("name", HOMOGENEOUS)
def test_sizes_cancel(name, backend):
    if backend == "cpu":
        pytest.importorskip("numba")
    q, k, v = np.random.default_rng(2).standard_normal((3, 9, D)).astype(np.float32)
    wanted = attention(q, k, v, HOMOGENEOUS[name], backend)
    size = np.abs(wanted).max()
    for a, b in ((-120, 0), (0, -120), (-80, 110), (-122, -122)):
        found = attention(np.ldexp(q, a), np.ldexp(k, b), v, HOMOGENEOUS[name], backend)
        np.testing.assert_allclose(found, wanted, atol=2e-4 * size, err_msg=f"{a} and {b} octaves")


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("factor", [1e-30, 1e-6, 1e6, 1e30])
@pytest.mark.parametrize("name", ["elu1", "relu"])
def test_multiples_near_the_largest_float(name, factor, backend):
    if backend == "cpu":
        pytest.importorskip("numba")
    phi = factor * getattr(ka.features, name)()
    x = np.outer([1.0, 3e38, 1e-38, 3.4e38, -3e38], np.ones(4)).astype(np.float32)
    v = np.arange(5, dtype=np.float32)[:, None]
    found, causal = attention(x, x, v, phi, backend)
    assert (found >= 0).all()
    assert (causal <= np.arange(5)[:, None] * (1 + 1e-5)).all()
    state = ka.initial_state(phi, (), 1, like=x)
    for t in range(5):
        token, state = ka.linear_attention_step(state, x[t], x[t], v[t], phi, backend=backend)
        np.testing.assert_allclose(token, causal[t], rtol=1e-4, atol=1e-6)


def test_a_zero_under_a_large_log_scale_is_zero():
    pytest.importorskip("numba")
    spec = MapSpec("sincos", omega=np.array([[0.0, 1.0]]), row_weights=np.array([1.0, 0.0]), amplitude=2.0**16)
    found = OP.implementation(x := np.array([[78.0**0.5, 0.0]], np.float32), "cpu")(x, spec)
    np.testing.assert_array_equal(found, [[np.inf, 0.0]])  # 2^16 e^78 [cos 0, sin 0]
