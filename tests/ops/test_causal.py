"""Compiled causal attention, and key_state and attend beside it, against the dense float64 oracle and the reference."""

import numpy as np
import pytest

import oracles
from kernattn.ops.attend import reference as reference_attend
from kernattn.ops.causal import reference as reference_causal
from kernattn.ops.key_state import reference as reference_key_state
from kernattn.ops.step import reference as reference_step
from linear_ops import EPS, agree, dense, inputs, same_state, spec_of
from seam import KINDS, MapSpec, PeakedSum, ScaledFeatures, empty

pytest.importorskip("numba")

from kernattn.ops.attend.cpu import attend
from kernattn.ops.causal.cpu import causal
from kernattn.ops.key_state.cpu import key_state
from kernattn.ops.step.cpu import step

SHAPES = [((), 1, 3, 2, 5), ((2,), 70, 16, 24, 32), ((1, 2), 131, 7, 5, 11)]  # lead, n, d, e, D


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_and_shape(kind, shape, dtype):
    lead, n, d, e, frequencies = shape
    q, k, v = inputs(lead, n, d, e, dtype)
    rng = np.random.default_rng(2)
    mask, ids = rng.random((*lead, n)) < 0.7, np.sort(rng.integers(0, 4, (*lead, n)), axis=-1)
    for elementwise in (False, True):
        spec = spec_of(kind, d, frequencies, elementwise=elementwise)
        tolerance = EPS[dtype] * 400
        for given in ({}, {"key_mask": mask}, {"segment_ids": ids}, {"key_mask": mask, "segment_ids": ids}):
            arguments = (given.get("key_mask"), given.get("segment_ids"))
            out, _, state = causal(q, k, v, spec, spec, None, *arguments, False)
            wanted, condition = dense(spec, q, k, v, causal=True, **given)
            agree(out, wanted, condition, v, spec, q, k)
            wide = [x.astype("f8") for x in (q, k, v)]
            same_state(state, reference_causal.causal(*wide, spec, spec, None, *arguments, False)[2], tolerance)
        for given in (None, mask):
            state = key_state(k, v, spec, given)
            same_state(state, reference_key_state.key_state(k.astype("f8"), v.astype("f8"), spec, given), tolerance)
            wanted, condition = dense(spec, q, k, v, key_mask=given)
            agree(attend(state, q, spec, q.dtype, False)[0], wanted, condition, v, spec, q, k)


LEADS = [((2, 3), (2, 1)), ((2, 1, 2), (1, 3, 1)), ((3,), ()), ((), (4,)), ((2, 3, 2), (3, 1))]


@pytest.mark.parametrize("leads", LEADS, ids=str)
@pytest.mark.parametrize("kind", ["relu", "exp"])
def test_leading_axes_broadcast(kind, leads):
    spec = spec_of(kind, 5, 8)
    q, k, v = inputs(leads[0], 67, 5, 3, "float32", kv_lead=leads[1])
    more = np.arange(2, dtype="f4").reshape(2, *(1,) * (max(map(len, leads)) + 2))
    v = v + more  # v has leading axes that k has not
    wanted, condition = dense(spec, q, k, v, causal=True)
    out, _, state = causal(q, k, v, spec, spec, None, None, None, False)
    agree(out, wanted, condition, v, spec, q, k)
    wanted, condition = dense(spec, q, k, v)
    agree(attend(state, q, spec, q.dtype, False)[0], wanted, condition, v, spec, q, k)
    token, _ = step(state, q[..., 0, :], k[..., 0, :], v[..., 0, :], spec, spec, None, False)
    plain, _ = reference_step.step(state, q[..., 0, :], k[..., 0, :], v[..., 0, :], spec, spec, None, False)
    np.testing.assert_allclose(token, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", ["per feature", "per row", "both"])
def test_computed_features(form):
    rng = np.random.default_rng(5)
    values, log = rng.standard_normal((2, 2, 90, 7)), 5 * rng.standard_normal((2, 2, 90, 7))
    given = {
        "per feature": (np.ones((2, 2, 90, 1)), log),
        "per row": (values, log[..., :1]),
        "both": (np.abs(values), log),
    }[form]
    q, k = (ScaledFeatures(given[0][i], given[1][i]) for i in range(2))
    v = rng.standard_normal((2, 90, 3))
    mask, ids = rng.random((2, 90)) < 0.6, np.arange(90) // 40
    features = [oracles.explicit(x.values * np.exp(x.log_scale)) for x in (q, k)]
    wanted, condition = oracles.linear_attention(
        *features, v, oracles.allowed(90, 90, causal=True, key_mask=mask, segment_ids=ids)
    )
    out, *_ = causal(q, k, v, None, None, None, mask, ids, False)
    assert (np.abs(out - wanted) <= 1e-12 * condition[..., None]).all()
    state = key_state(k, v, None, mask)
    wanted, condition = oracles.linear_attention(*features, v, oracles.allowed(90, 90, key_mask=mask))
    assert (np.abs(attend(state, q, None, v.dtype, False)[0] - wanted) <= 1e-12 * condition[..., None]).all()
    token_q, token_k = (ScaledFeatures(*(x[:, 0] for x in f)) for f in (q, k))
    got, _ = step(state, token_q, token_k, v[:, 0], None, None, None, False)
    plain, _ = reference_step.step(state, token_q, token_k, v[:, 0], None, None, None, False)
    np.testing.assert_allclose(got, plain, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("growth", [30.0, 1e-3, 300.0])
@pytest.mark.parametrize("t", [0, 9, 40, 100])
@pytest.mark.parametrize("kind", ["elu1", "sincos", "exp"])
def test_blind_to_the_future(kind, t, growth):
    """Rows up to t stay, when what comes after is `growth` times as large; and stay right, which 0/0 would not be."""
    spec = spec_of(kind, 16, 24)
    q, k, v = inputs((2,), 130, 16, 8, "float32")
    k[:, t + 1 :] *= np.float32(growth)
    before, *_ = causal(q, k, v, spec, spec, None, None, None, False)
    wanted, condition = dense(spec, q[:, : t + 1], k[:, : t + 1], v[:, : t + 1], causal=True)
    agree(before[:, : t + 1], wanted, condition, v, spec, q[:, : t + 1], k[:, : t + 1])
    q[:, t + 1 :], v[:, t + 1 :] = 3, np.nan
    k[:, t + 1 :] *= -2
    after, *_ = causal(q, k, v, spec, spec, None, None, None, False)
    agree(after[:, : t + 1], wanted, condition, v[:, : t + 1], spec, q[:, : t + 1], k[:, : t + 1])


@pytest.mark.parametrize("norm", [1.0, 1e3, 1e18])
@pytest.mark.parametrize("kind", KINDS)
def test_finite_at_any_norm(kind, norm):
    spec = (
        spec_of(kind, 8, 12)
        if kind not in ("cos", "sincos")
        else MapSpec(kind, spec_of(kind, 8, 12).omega, offset=np.zeros(12))
    )
    q, k, v = inputs((1,), 100, 8, 3, "float32")
    q, k = (norm / np.sqrt(8) * x for x in (q.clip(-2, 2), k.clip(-2, 2)))
    out, _, state = causal(q.astype("f4"), k.astype("f4"), v, spec, spec, None, None, None, False)
    assert not np.isnan(out).any()
    if kind not in ("cos", "sincos"):
        assert np.isfinite(out).all()
        assert all(np.isfinite(x).all() for x in state) or kind in ("elu1", "relu")
    if kind in ("exp", "exp_pair"):
        assert (np.abs(out) <= np.abs(v).max() * 1.001).all()


def test_masked_tokens_may_hold_anything():
    spec = spec_of("exp", 6, 10)
    q, k, v = inputs((2,), 80, 6, 4, "float32")
    mask = np.random.default_rng(6).random((2, 80)) < 0.5
    clean, _, state = causal(q, k, v, spec, spec, None, mask, None, False)
    k[~mask], v[~mask] = np.nan, np.inf
    dirty, _, other = causal(q, k, v, spec, spec, None, mask, None, False)
    np.testing.assert_array_equal(clean, dirty)
    for a, b in zip(state, other, strict=True):
        np.testing.assert_array_equal(a, b)
    token, _ = step(
        state, q[:, 0], np.full((2, 6), np.nan, "f4"), v[:, 0] * np.nan, spec, spec, np.zeros(2, bool), False
    )
    assert np.isfinite(token).all()


def test_rows_without_a_key_are_zero_and_the_state_stays_empty():
    q, k, v = inputs((2,), 10, 6, 4, "float32")
    for kind in KINDS:
        spec = spec_of(kind, 6, 10)
        out, _, state = causal(q, k, v, spec, spec, None, np.zeros((2, 10), bool), None, False)
        assert (out == 0).all()
        assert (state.s == 0).all()
        assert (state.z == 0).all()
        assert np.isneginf(state.peak).all()
        assert (attend(state, q, spec, q.dtype, False)[0] == 0).all()


@pytest.mark.parametrize("kind", ["elu1", "exp", "sincos"])
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_one_head_is_cut_into_parts(kind, state, packed, on_threads):
    """Fewer heads than threads: the parts of a sequence, each with what comes before it."""
    on_threads(3)
    spec = spec_of(kind, 4, 6)
    n = 1100
    q, k, v = inputs((), n, 4, 3, "float64")
    ids = np.repeat([0, 1, 2, 3], [400, 100, 10, 590]) if packed else None
    mask = np.random.default_rng(7).random(n) < 0.9
    before = key_state(k[:50] * 2, v[:50], spec, None) if state else None
    out, _, after = causal(q, k, v, spec, spec, before, mask, ids, False)
    wanted, _, last = reference_causal.causal(q, k, v, spec, spec, before, mask, ids, False)
    close = np.abs(out - wanted) <= 1e-9 * (1 + np.abs(wanted))
    assert close.all() if kind != "sincos" else close.mean() > 0.999
    same_state(after, last, 1e-11)
    same_state(key_state(k, v, spec, mask), reference_key_state.key_state(k, v, spec, mask), 1e-11)
    on_threads(1)
    alone, *_ = causal(q, k, v, spec, spec, before, mask, ids, False)
    assert (np.abs(out - alone) <= 1e-9 * (1 + np.abs(alone))).mean() > 0.999


def strided(x):
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def frozen(x):
    x = x.copy()
    x.flags.writeable = False
    return x


@pytest.mark.parametrize("lay", [strided, frozen, np.asfortranarray], ids=lambda f: f.__name__)
def test_read_only_and_strided_inputs(lay):
    spec = spec_of("exp", 6, 10)
    q, k, v = inputs((2,), 80, 6, 4, "float32")
    mask = np.random.default_rng(8).random((2, 80)) < 0.8
    plain, _, state = causal(q, k, v, spec, spec, None, mask, None, False)
    laid = [lay(x) for x in (q, k, v)]
    kept = [x.copy() for x in laid]
    out, _, laid_state = causal(
        *laid, spec, spec, PeakedSum(*map(lay, empty(np, (2,), 10, 10, 4, np.dtype("f4"), v))), lay(mask), None, False
    )
    np.testing.assert_array_equal(out, plain)
    np.testing.assert_array_equal(
        attend(PeakedSum(*map(lay, state)), laid[0], spec, q.dtype, False)[0], attend(state, q, spec, q.dtype, False)[0]
    )
    given = PeakedSum(*map(lay, state))
    before = [x.copy() for x in given]
    token, new = step(given, *(x[:, 3] for x in laid), spec, spec, None, lay is not strided)
    np.testing.assert_array_equal(token, step(state, q[:, 3], k[:, 3], v[:, 3], spec, spec, None, False)[0])
    for x, y in zip((*laid, *given), (*kept, *before), strict=True):
        if x.flags.writeable and x.flags.c_contiguous:
            continue  # handed over for reuse
        np.testing.assert_array_equal(x, y)
    assert all(x.flags.writeable for x in (out, token, *new, *laid_state))


def test_small_floats_are_computed_in_single_precision():
    spec = spec_of("exp", 6, 10)
    q, k, v = inputs((2,), 80, 6, 4, "float16")
    out, _, state = causal(q, k, v, spec, spec, None, None, None, False)
    assert out.dtype == np.float16
    assert all(x.dtype == np.float32 for x in state)
    wide, *_ = causal(*(x.astype("f4") for x in (q, k, v)), spec, spec, None, None, None, False)
    np.testing.assert_array_equal(out, wide.astype("f2"))
    assert attend(state, q, spec, q.dtype, False)[0].dtype == np.float16
    assert step(state, q[:, 0], k[:, 0], v[:, 0], spec, spec, None, False)[0].dtype == np.float16


@pytest.mark.parametrize("dtype", ["float32"])
def test_no_worse_than_the_composed_path(dtype):
    """Accuracy is part of speed: the error against the oracle, beside that of the reference in the same dtype."""
    for kind in ("elu1", "exp"):
        spec = spec_of(kind, 32, 64)
        q, k, v = inputs((2,), 256, 32, 16, dtype)
        wanted, _ = dense(spec, q, k, v, causal=True)
        ours = np.abs(causal(q, k, v, spec, spec, None, None, None, False)[0] - wanted)
        composed = np.abs(reference_causal.causal(q, k, v, spec, spec, None, None, None, False)[0] - wanted)
        assert np.sqrt(np.mean(ours**2)) <= 1.5 * np.sqrt(np.mean(composed**2))
        state = key_state(k, v, spec, None)
        plain = reference_attend.attend(state, q, spec, q.dtype, False)[0]
        np.testing.assert_allclose(attend(state, q, spec, q.dtype, False)[0], plain, rtol=1e-4, atol=1e-5)
