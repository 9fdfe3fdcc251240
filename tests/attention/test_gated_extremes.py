"""Gated attention at extremes: rows that are not finite, resets, gates near 1 and sums near the end of floats."""

import numpy as np
import pytest

import kernattn as ka
from gated import close, recur
from kernattn.attention import GatedState, GatedStretch


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_a_reset_forgets_what_is_not_finite(backend):
    """On the host: chunks end where a state begins anew."""
    k, v, g = np.ones((5, 2), "f4"), np.array([[np.nan], [np.inf], [1], [2], [4]], "f4"), np.zeros(5, "f4")
    g[2], rows = -np.inf, np.zeros((5, 2), "f4")
    resets = rows + g[:, None]
    for logs in ({"g": g}, {"gk": resets}, {"g": g, "gk": rows}, {"gk": resets, "key_mask": np.arange(5) != 3}):
        out, _ = ka.gated_linear_attention(k, k, v, **logs, scale=0.5, backend=backend)
        np.testing.assert_array_equal(out[2:, 0], [1, 1, 5] if "key_mask" in logs else [1, 3, 7])
        call = {**logs, "beta": np.full(5, 0.5, "f4"), "scale": 0.5, "backend": backend}
        (out, _), pullback = ka.vjp(ka.gated_linear_attention, k, k, v, **call)
        assert np.isfinite(out[2:]).all()
        found = pullback((np.where(np.arange(5) < 2, 0, 1).astype("f4")[:, None], None))
        assert all(np.isfinite(x[2:]).all() for x in (found.q, found.k, found.v))
        begun = GatedState(np.full((2, 1), np.inf, "f4"))
        out, _ = ka.gated_linear_attention(k, k, np.ones_like(v), **call, state=begun)
        assert np.isfinite(out[2:]).all()
    k[0, 0], resets[2, 1], v[:2] = np.nan, 0, 3
    call = {"gk": resets, "scale": 1.0, "backend": backend}
    (out, _), pullback = ka.vjp(ka.gated_linear_attention, k, k, v, **call)  # of a channel alone, too
    np.testing.assert_array_equal(out[2:, 0], [8, 12, 20])
    found = pullback((np.where(np.arange(5) < 2, 0, 1).astype("f4")[:, None], None))
    np.testing.assert_array_equal(found.q[2:], [[1, 7], [3, 9], [7, 13]])
    np.testing.assert_array_equal(found.k[2:], [[3, 3], [4, 4], [4, 4]])
    np.testing.assert_array_equal(found.v[1:, 0], [3, 6, 4, 2])
    np.testing.assert_array_equal(found.gk[2:], [[0, 18], [2, 14], [3, 9]])
    hidden, _ = ka.gated_linear_attention(k, k, v, gk=resets, key_mask=np.arange(5) != 2, backend=backend)
    assert np.isnan(hidden[2:]).all()
    both = ka.merge_states(GatedState(np.full((1, 1), np.inf)), GatedStretch(np.ones((1, 1)), np.zeros((1, 1))))
    np.testing.assert_array_equal(both.s, [[1]])


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_extreme_rows_and_gates(backend):
    """No warning, and the right value: huge rows that are normalised, and logs at the end of their dtype."""
    q, v = np.full((3, 2), 1e30, "f4"), np.arange(3, dtype="f4")[:, None]
    out, _ = ka.gated_linear_attention(q, q, v, l2_normalise=True, scale=1.0, backend=backend)
    np.testing.assert_allclose(out[:, 0], [0, 1, 3], rtol=1e-6)
    least = np.finfo("f4").min
    logs = {"g": np.full(3, least), "gk": np.full((3, 2), least)}
    out, _ = ka.gated_linear_attention(np.ones_like(q), np.ones_like(q), v, **logs, scale=1.0, backend=backend)
    np.testing.assert_array_equal(out[:, 0], [0, 2, 4])
    stretch = ka.attention.gated_state(np.ones_like(q), v, **logs, backend=backend)
    np.testing.assert_array_equal(stretch.s[0], [2])
    np.testing.assert_array_equal(stretch.through, 0)
    half = {"g": np.full(3, -1, "f2"), "gk": np.full((3, 2), -0.0003, "f2")}
    ones = np.ones((3, 2), "f2")
    _, after = ka.gated_linear_attention(ones, ones, ones, **half, backend=backend)
    close(after.s, recur(ones, ones, ones, **half)[1], 1e-6)
    wide = np.ones((2, 3, 2))
    out, _ = ka.gated_linear_attention(*3 * [wide[0]], erase=(wide[0], -0.1 * wide), backend=backend)
    close(out, recur(*3 * [wide[0]], erase=(wide[0], -0.1 * wide))[0])


@pytest.mark.parametrize("gate", ["g", "gk"])
def test_decays_near_one_are_not_rounded_over_and_over(gate):
    rng, n, d = np.random.default_rng(0), 3000, 8
    q, k, v = (rng.standard_normal((n, d)).astype("f4") for _ in range(3))
    logs = np.full(n if gate == "g" else (n, d), -1e-6, "f4")
    wide = [x.astype("f8") for x in (q, k, v)]
    wanted, after = ka.gated_linear_attention(*wide, **{gate: logs.astype("f8")}, backend="reference")
    out, state = ka.gated_linear_attention(q, k, v, **{gate: logs}, backend="cpu")
    for found, right in ((out, wanted), (state.s, after.s)):
        np.testing.assert_allclose(found, right, rtol=0, atol=1e-6 * abs(right).max())


@pytest.mark.parametrize("gate", ["g", "gk"])
def test_a_general_rule_rounds_no_decay_near_one_over_and_over(gate):
    rng, n, d = np.random.default_rng(0), 2000, 8
    q, k, v, a, b = (rng.standard_normal((n, d)).astype("f4") for _ in range(5))
    logs = np.full(n if gate == "g" else (n, d), -1e-4, "f4")
    pair = -0.01 * a, 0.01 * b  # which erases little
    wide = [x.astype("f8") for x in (q, k, v)]
    wanted, after = ka.gated_linear_attention(
        *wide, **{gate: logs.astype("f8")}, erase=tuple(x.astype("f8") for x in pair), backend="cpu"
    )
    out, state = ka.gated_linear_attention(q, k, v, **{gate: logs}, erase=pair, backend="cpu")
    for found, right in ((out, wanted), (state.s, after.s)):
        np.testing.assert_allclose(found, right, rtol=0, atol=3e-6 * abs(right).max())


@pytest.mark.parametrize("gate", ["g", "gk"])
def test_states_near_the_end_of_floats(gate):
    """Also where a decay has been left out: what is written may not be larger for that."""
    n, d = 48, 8
    k, v = np.zeros((n, d), "f4"), np.zeros((n, d), "f4")
    k[:, 0], v[30] = 1, 2.5e38
    logs = np.full(n if gate == "g" else (n, d), -0.015, "f4")
    out, state = ka.gated_linear_attention(k, k, v, **{gate: logs}, scale=1.0, backend="cpu")
    np.testing.assert_allclose(out[30:, 0], 2.5e38 * np.exp(-0.015 * np.arange(18.0)), rtol=1e-6)
    np.testing.assert_allclose(state.s[0], out[-1], rtol=5e-7)
