"""The kernels of `step` on the emulation: a loop of steps is causal attention."""

import numpy as np
import pytest

import oracles
from cuda_ops.cases import CASES, array, assert_close, specs, to64
from seam import PeakedSum


@pytest.mark.parametrize(("kind", "dtype"), CASES)
def test_steps(cupy, kind, dtype):
    from kernattn.ops.key_state.gpu import key_state
    from kernattn.ops.step.gpu import step

    rng = np.random.default_rng(1)
    n, start, d, e = 30, 20, 5, 7 if dtype == "float32" else 8
    spec = specs(rng, kind, d, 37)
    q, k = (array(cupy, rng.normal(size=(3, n, d)), dtype) for _ in range(2))
    v = array(cupy, rng.normal(size=(3, n, e)), dtype)
    mask = rng.random((3, n)) < 0.7
    state = key_state(k[:, :start], v[:, :start], spec, cupy.asarray(mask[:, :start]))
    rows = []
    for t in range(start, n):
        before = [part.copy() for part in state]
        reuse = t % 2 == 0
        out, after = step(state, q[:, t], k[:, t], v[:, t], spec, spec, cupy.asarray(mask[:, t]), reuse)
        assert all((a is b) == reuse for a, b in zip(after, state, strict=True))
        if not reuse:
            assert all(np.array_equal(to64(a), to64(b)) for a, b in zip(before, state, strict=True))
        rows.append(out)
        state = after
    out = cupy.stack(rows, axis=-2)
    may = oracles.allowed(n, n, causal=True, key_mask=mask)[..., start:, :]
    assert_close(out, q[:, start:], k, v, spec, dtype, may)


def test_an_empty_state_and_wild_norms(cupy):
    from kernattn.ops.step.gpu import step

    rng = np.random.default_rng(2)
    spec = specs(rng, "exp", 5, 20)
    size = np.array([1.0, 30.0, 0.1, 300.0, 1.0])[:, None]
    q, k, v = (array(cupy, rng.normal(size=(2, 5, c)), "float32") for c in (5, 5, 4))
    k = k * cupy.asarray(size.astype(np.float32))
    state = PeakedSum(*(cupy.zeros((2, *shape), dtype="float32") for shape in ((20, 4), (20,), (20,))))
    state.peak[...] = -np.inf
    out, after = step(state, q[:, 0], k[:, 0], v[:, 0], spec, spec, cupy.asarray(np.array([True, False])), False)
    np.testing.assert_allclose(to64(out[0]), to64(v[0, 0]), rtol=1e-6)
    assert (out[1] == 0).all()
    assert (after.peak[1] == -np.inf).all()
    rows = []
    for t in range(5):
        out, state = step(state, q[:, t], k[:, t], v[:, t], spec, spec, None, False)
        rows.append(out)
    assert_close(cupy.stack(rows, axis=-2), q, k, v, spec, "float32", oracles.allowed(5, 5, causal=True))


@pytest.mark.parametrize(
    ("queries", "keys"), [((2, 3, 2), (2, 3, 1)), ((1, 3), (2, 1)), ((3,), ()), ((2, 1, 2), (1, 2, 1)), ((), (2,))]
)
def test_groups(cupy, queries, keys):
    from kernattn.ops.key_state.gpu import key_state
    from kernattn.ops.step.gpu import step

    rng = np.random.default_rng(7)
    spec = specs(rng, "sincos", 5, 20)
    q = array(cupy, rng.normal(size=(*queries, 1, 5)), "float32")
    k, v = (array(cupy, rng.normal(size=(*keys, 9, c)), "float32") for c in (5, 8))
    state = key_state(k[..., :8, :], v[..., :8, :], spec, None)
    out, _ = step(state, q[..., 0, :], k[..., 8, :], v[..., 8, :], spec, spec, None, False)
    assert_close(out[..., None, :], q, k, v, spec, "float32")
