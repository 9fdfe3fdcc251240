"""The laws of linear attention for the families of maps that the ops take as computed features, a few cases each."""

import numpy as np
import pytest

import kernattn as ka
import laws
import maps
from kernattn.errors import ParameterError


def inputs(n=41):
    """q, k of one sign, as histograms are, and v."""
    q, k, v = laws.arrays(3, (2, n, maps.DIM), (2, n, maps.DIM), (2, n, 3), dtype="float64")
    return np.abs(q), np.abs(k), v


@pytest.mark.parametrize("name", maps.OTHERS)
def test_the_laws_hold(name, backend):
    phi, (q, k, v) = maps.make(name), inputs()
    n = q.shape[-2]
    mask, ids = np.random.default_rng(1).random(n) < 0.7, np.arange(n) // 15 % 2
    laws.oracle_agrees(phi, q, k, v, backend, key_mask=mask, segment_ids=ids)
    laws.forms_agree(phi, q, k, v, backend, cut=33, key_mask=mask)
    if "chi2" not in name:  # this law draws keys of either sign
        laws.blind_to_the_future(phi, q, k, v, backend, t=20)
    laws.order_of_keys_is_free(phi, q, k, v, backend)
    laws.masked_is_removed(phi, q, k, v, mask, backend)
    laws.merging_is_a_monoid(phi, q, k, v, backend, cuts=(5, 17))


@pytest.mark.parametrize("name", maps.OTHERS)
def test_both_sides_are_the_features(name):
    phi, (q, k, _) = maps.make(name), inputs(7)
    for x, scaled, plain in ((q, phi.scaled_query, phi.query), (k, phi.scaled_key, phi.key)):
        values, log_scale = scaled(x)
        np.testing.assert_allclose(values * np.exp(log_scale), plain(x), rtol=1e-12, atol=1e-14)
        assert plain(x).shape == (2, 7, phi.num_features_of(maps.DIM))


def test_signed_features_beside_exponential_ones(backend):
    """Their logarithms are per feature and have no sign: only the reference takes them, the others say what to do."""
    phi, (q, k, v) = maps.make("positive-softmax") + maps.make("trigonometric-ard"), inputs()
    if backend.name == "reference":
        laws.oracle_agrees(phi, q, k, v, backend)
        return
    with pytest.raises(ParameterError, match="ask for backend='reference'"):
        laws.causal(phi, q, k, v, backend)


@pytest.mark.parametrize(
    "kernel",
    [
        ka.kernels.Gaussian() + ka.kernels.Softmax(),
        ka.kernels.Softmax() * ka.kernels.Polynomial(2),
        ka.kernels.Gaussian() * ka.kernels.Softmax(),
    ],
    ids=str,
)
def test_signed_beside_exponential_features_run_unless_a_backend_is_asked_for(kernel):
    q, k, v = laws.arrays(5, (2, 9, 3), (2, 9, 3), (2, 9, 2), dtype="float64")
    phi = ka.random_features(kernel, 3, 16, rng=3)
    expected = ka.linear_attention(q, k, v, phi, backend="reference")
    np.testing.assert_array_equal(ka.linear_attention(q, k, v, phi), expected)
    np.testing.assert_allclose(ka.attend(ka.key_state(k, v, phi), q, phi), expected, rtol=1e-12)
    out, _ = ka.causal_linear_attention(q, k, v, phi)
    state = ka.initial_state(phi, (2,), value_dim=2, like=k)
    for t in range(9):
        token, state = ka.linear_attention_step(state, q[:, t], k[:, t], v[:, t], phi)
        np.testing.assert_allclose(token, out[:, t], rtol=1e-9)
