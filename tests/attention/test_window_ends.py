"""Attention with a window where something is at an end: one of its parts, logs of normalisers, or values."""

import ml_dtypes
import numpy as np
import pytest

import kernattn as ka
from kernattn._sums.peaked import Normaliser
from kernattn.ops.hybrid.join import shares_of
from kernattn.ops.hybrid_vjp.cpu import _ordinary

A = ka.attention


def test_gradients_after_a_state_without_a_window():
    """Those of queries count what the state holds, and the state has its own: tokens before, in one call, say both."""
    q, k, v, g = np.random.default_rng(0).standard_normal((4, 9, 4)).astype("f4")
    phi = ka.random_features(ka.kernels.Softmax(), 4, 8, "positive", rng=0)
    _, pullback = ka.vjp(A.window_attention, q, k, v, phi, 0)
    wanted = pullback((np.where(np.arange(9)[:, None] < 4, 0, g).astype("f4"), None))
    (_, state), pull_before = ka.vjp(A.window_attention, q[:4], k[:4], v[:4], phi, 0)
    _, pull_after = ka.vjp(A.window_attention, q[4:], k[4:], v[4:], phi, 0, state=state)
    found = pull_after((g[4:], None))
    before = pull_before((np.zeros_like(g[:4]), found.state))
    np.testing.assert_allclose(found.q, wanted.q[4:], rtol=1e-4, atol=1e-5)
    for name in "kv":
        both = np.concatenate([getattr(before, name), getattr(found, name)])
        np.testing.assert_allclose(both, getattr(wanted, name), rtol=1e-4, atol=1e-5)


def test_gradients_of_rows_that_see_a_key_of_next_to_no_weight_alone():
    """Features of keys that they do not see would weigh e^100 times as much, which is no float32."""
    rng = np.random.default_rng(2)
    spec = ka.features.MapSpec("exp", 0.3 * rng.standard_normal((16, 8)), normalised=True)
    phi = ka.features.Fitted(ka.kernels.Softmax(), "exponential", spec, None, 0.1, "positive", 0.2)
    q, g = rng.standard_normal((2, 2, 12, 8)).astype("f4")
    k, v = rng.standard_normal((2, 1, 12, 8)).astype("f4")
    call = (20 * q, 20 * k, v, phi, 1), {"key_mask": np.arange(12) > 6}
    found, wanted = (
        ka.vjp(A.window_attention, *call[0], **call[1], backend=backend)[1]((g, None))
        for backend in ("cpu", "reference")
    )
    for name in "qkv":
        np.testing.assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-3, atol=1e-4)


def test_logs_at_the_ends_of_floats_raise_no_warning():
    """A normaliser that no float can tell is the largest one, or minus that; pytest makes warnings errors."""
    most, one = np.finfo("f4").max, np.ones(2, "f4")
    (share, rest), _ = shares_of(np, Normaliser(np.array([most, -most]), one), Normaliser(np.array([-most, most]), one))
    np.testing.assert_array_equal([share, rest], [[1, 0], [0, 1]])
    rows = np.full((2, 4), most)
    assert not _ordinary(rows, rows, 1.0, one, one)
    assert _ordinary(np.ones_like(rows), rows / 1e4, 1.0, one, one)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16])
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_infinite_values_and_the_largest_of_sixteen_bits_stay_so(backend, dtype):
    q, k, v = np.random.default_rng(0).standard_normal((3, 20, 4)).astype(dtype)
    v[3, 0], v[4, 1], v[:, 2] = np.inf, -np.inf, np.finfo("f2").max
    given = q, k, v, ka.features.elu1(), 4
    kept, _ = ka.vjp(A.window_attention, *given, backend=backend)
    for out, _ in (A.window_attention(*given, backend=backend), kept):
        np.testing.assert_array_equal(out[4:, 0], np.full(16, np.inf, dtype))
        np.testing.assert_array_equal(out[4:, 1], np.full(16, -np.inf, dtype))
        np.testing.assert_array_equal(out[:, 2], v[:, 2])
        assert np.isfinite(out[:3]).all()
