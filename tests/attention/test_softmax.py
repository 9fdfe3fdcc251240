"""Exact attention: blockwise against the dense oracle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernattn as ka
import laws
import oracles
from xp import backends, to_numpy

TOLERANCE = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-5, "float64": 1e-12}


@pytest.fixture(params=backends("block_softmax"), ids=repr, scope="session")
def softmax_backend(request):
    return request.param


def check(q, k, v, backend, *, scale=None, causal=False, key_mask=None):
    a = backend.kind.asarray
    dtype = v.dtype.name
    mask = None if key_mask is None else a(key_mask)
    out, lse = ka.attention.softmax_with_lse(
        a(q), a(k), a(v), scale=scale, causal=causal, key_mask=mask, backend=backend.name
    )
    same = ka.softmax_attention(a(q), a(k), a(v), scale=scale, causal=causal, key_mask=mask, backend=backend.name)
    np.testing.assert_array_equal(to_numpy(same), to_numpy(out))
    n, length = q.shape[-2], k.shape[-2]
    may = np.tri(n, length, length - n, dtype=bool) if causal else np.ones((n, length), bool)
    if key_mask is not None:
        may = may & key_mask[..., None, :]
    wanted, wanted_lse = oracles.softmax_attention(*(to_numpy(x) for x in (q, k, v)), scale=scale, may=may)
    logits = np.abs(np.einsum("...nd,...kd->...nk", to_numpy(q), to_numpy(k))).max() * (scale or q.shape[-1] ** -0.5)
    rounding = max(TOLERANCE[dtype], 8 * laws.EPS[dtype] * abs(logits))
    laws.close(out, wanted, rounding * np.abs(to_numpy(v)).max(), "out")
    seen = np.isfinite(wanted_lse)
    lse = to_numpy(lse)
    np.testing.assert_array_equal(np.isneginf(lse), ~seen)
    np.testing.assert_allclose(
        lse[seen],
        wanted_lse[seen],
        rtol=max(1e-5 if dtype != "float64" else 1e-12, rounding * (dtype == "float64")),
        atol=max(laws.BASE[dtype], 8 * laws.EPS[dtype] * logits),
    )
    assert (to_numpy(out)[~seen] == 0).all()


@given(
    n=st.integers(1, 70),
    length=st.sampled_from([1, 2, 31, 32, 33, 64, 65, 129]),
    lead=st.sampled_from([((), ()), ((2,), (2,)), ((2, 3), (2, 1)), ((3,), ())]),
    dtype=st.sampled_from(["float32", "float64"]),
    causal=st.booleans(),
    masked=st.sampled_from(["none", "shared", "each", "nothing"]),
    scale=st.sampled_from([None, 0.0, 1.0, -0.5]),
)
@settings(max_examples=60)
def test_agrees_with_the_oracle(n, length, lead, dtype, causal, masked, scale, softmax_backend):
    q, k, v = laws.arrays(n + length, (*lead[0], n, 4), (*lead[1], length, 4), (*lead[1], length, 3), dtype=dtype)
    rng = np.random.default_rng(n)
    mask = {
        "none": None,
        "shared": rng.random(length) < 0.6,
        "each": rng.random((*lead[1], length)) < 0.5,
        "nothing": np.zeros(length, bool),
    }[masked]
    check(q, k, v, softmax_backend, scale=scale, causal=causal, key_mask=mask)


@pytest.mark.parametrize(("n", "length"), [(511, 513), (513, 513), (1, 1025), (600, 1100), (1100, 600)])
@pytest.mark.parametrize("causal", [False, True])
def test_across_blocks(n, length, causal, softmax_backend):
    q, k, v = laws.arrays(n, (n, 3), (length, 3), (length, 2), dtype="float64")
    mask = np.random.default_rng(0).random(length) < 0.3
    mask[:540] = False  # the first blocks are empty
    check(q, k, v, softmax_backend, causal=causal)
    check(q, k, v, softmax_backend, causal=causal, key_mask=mask)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_dtypes(dtype, softmax_backend):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    q, k, v = laws.arrays(1, (2, 33, 4), (2, 33, 4), (2, 33, 3), dtype=dtype)
    check(q, k, v, softmax_backend, causal=True)


def test_huge_logits(softmax_backend):
    q, k, v = laws.arrays(2, (40, 4), (40, 4), (40, 3), scale=1000.0)
    for causal in (False, True):
        out = to_numpy(
            ka.softmax_attention(
                *(softmax_backend.kind.asarray(x) for x in (q, k, v)), causal=causal, backend=softmax_backend.name
            )
        )
        assert np.isfinite(out).all()
        assert (out <= v.max()).all()
        assert (out >= v.min()).all()


def test_parts_merge_by_their_normalisers(softmax_backend):
    q, k, v = laws.arrays(3, (20, 4), (30, 4), (30, 3), dtype="float64")
    a = softmax_backend.kind.asarray

    def run(low, high):
        return [
            to_numpy(x)
            for x in ka.attention.softmax_with_lse(a(q), a(k[low:high]), a(v[low:high]), backend=softmax_backend.name)
        ]

    (left, lse_left), (right, lse_right), (whole, lse) = run(0, 11), run(11, 30), run(0, 30)
    np.testing.assert_allclose(np.logaddexp(lse_left, lse_right), lse, rtol=1e-12)
    merged = np.exp(lse_left - lse)[:, None] * left + np.exp(lse_right - lse)[:, None] * right
    np.testing.assert_allclose(merged, whole, rtol=1e-11, atol=1e-12)


def test_past_rows_do_not_see_the_future(softmax_backend):
    q, k, v = laws.arrays(4, (70, 4), (70, 4), (70, 3))
    a, name = softmax_backend.kind.asarray, softmax_backend.name
    before = to_numpy(ka.softmax_attention(a(q), a(k), a(v), causal=True, backend=name))
    for growth in (30.0, 1e-3):
        k2, v2 = k.copy(), v.copy()
        k2[41:], v2[41:] = growth * k[41:], -v[41:]
        after = to_numpy(ka.softmax_attention(a(q), a(k2), a(v2), causal=True, backend=name))
        np.testing.assert_allclose(after[:41], before[:41], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("filling", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("n", "length"), [(70, 70), (600, 600), (40, 130), (130, 40)])
def test_nan_and_infinity_stay_where_they_are_seen(n, length, filling, softmax_backend):
    q, k, v = laws.arrays(7, (n, 4), (length, 4), (length, 3))
    keep = np.arange(length) % 5 != 3
    a, name = softmax_backend.kind.asarray, softmax_backend.name

    def run(*x):
        with np.errstate(invalid="ignore"):
            given = (a(each) for each in x)
            return to_numpy(ka.softmax_attention(*given, causal=True, key_mask=a(keep), backend=name))

    clean = run(q, k, v)
    for at in (0, 38, length - 2):
        blind = np.arange(n) + length - n < at if keep[at] else np.ones(n, bool)
        for i in (1, 2):
            spoilt = [q, k, v]
            spoilt[i] = spoilt[i].copy()
            spoilt[i][at, 1] = filling
            out = run(*spoilt)
            np.testing.assert_allclose(out[blind], clean[blind], rtol=1e-6, atol=1e-6)
            if i == 2:
                np.testing.assert_allclose(out[:, [0, 2]], clean[:, [0, 2]], rtol=1e-6, atol=1e-6)
                np.testing.assert_array_equal(out[~blind, 1], filling)


def test_masked_keys_do_not_count(softmax_backend):
    q, k, v = laws.arrays(5, (9, 4), (30, 4), (30, 3))
    keep = np.random.default_rng(0).random(30) < 0.5
    a, name = softmax_backend.kind.asarray, softmax_backend.name
    k2, v2 = k.copy(), v.copy()
    k2[~keep], v2[~keep] = 1e6, 1e6
    got = ka.softmax_attention(a(q), a(k2), a(v2), key_mask=a(keep), backend=name)
    wanted = ka.softmax_attention(a(q), a(k[keep]), a(v[keep]), backend=name)
    np.testing.assert_allclose(to_numpy(got), to_numpy(wanted), rtol=1e-5, atol=1e-6)


def test_positive_features_converge_to_it():
    """Linear attention with positive softmax features approaches exact attention: no scale is missing or doubled."""
    q, k, v = laws.arrays(6, (30, 4), (30, 4), (30, 3), dtype="float64", scale=0.7)
    phi = ka.random_features(ka.kernels.Softmax(), 4, 20_000, rng=1)
    exact = ka.softmax_attention(q, k, v)
    np.testing.assert_allclose(ka.linear_attention(q, k, v, phi), exact, atol=0.03)
    exact = ka.softmax_attention(q, k, v, causal=True)
    np.testing.assert_allclose(ka.causal_linear_attention(q, k, v, phi)[0], exact, atol=0.03)
    phi = ka.random_features(ka.kernels.Softmax(scale=1.0), 4, 20_000, estimator="optimal_positive", rng=1)
    np.testing.assert_allclose(ka.linear_attention(q, k, v, phi), ka.softmax_attention(q, k, v, scale=1.0), atol=0.05)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("pattern", [None, ka.patterns.local(3)])
def test_a_bias_that_is_no_number_makes_the_rows_that_see_it_nan(backend, pattern, bad):
    rng = np.random.default_rng(4)
    (q, k, v, g), bias = rng.standard_normal((4, 2, 70, 3)), rng.standard_normal(70)
    sees = np.tri(70, dtype=bool) if pattern is None else pattern.plan(70, causal=True).mask()
    rows, told = sees[:, 50], sees[sees[:, 50]].any(axis=0)
    found = []
    for number, of_rows in ((0.5, g * ~rows[:, None]), (bad, g)):
        bias[50] = number
        options = {"key_bias": bias, "pattern": pattern, "causal": True, "backend": backend.name}
        (out, lse), back = ka.vjp(ka.attention.softmax_with_lse, q, k, v, **options)
        gradients = back((of_rows, None))
        found.append((out, lse[..., None], gradients.q, gradients.k, gradients.v, gradients.key_bias[:, None]))
    for clean, spoilt, poisoned in zip(*found, [rows, rows, rows, told, told, told], strict=True):
        assert np.isnan(spoilt[..., poisoned, :]).all()
        np.testing.assert_allclose(spoilt[..., ~poisoned, :], clean[..., ~poisoned, :], rtol=1e-10, atol=1e-12)
