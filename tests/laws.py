"""The laws of linear attention, as functions of a map, arrays and a backend.

Each raises AssertionError where the law is broken. Arrays are NumPy ones in the dtype under test;
they go to the backend's own kind and come back as float64.
"""

from itertools import pairwise

import numpy as np

import kernattn as ka
import oracles
from xp import Backend, numpy_dtype, to_numpy

REFERENCE = Backend("reference")
EPS = {"float16": 2.0**-23, "bfloat16": 2.0**-23, "float32": 2.0**-23, "float64": 2.0**-52}  # of the accumulation
BASE = {"float16": 1e-5, "bfloat16": 1e-5, "float32": 1e-5, "float64": 1e-12}
ROUNDING = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 0.0, "float64": 0.0}  # of the result


# ---- what is expected, and how closely ----


def num_features_of(phi, x, side="key"):
    """The oracle's features of a map: its spec's formula in the log domain, or else its own numbers in float64."""
    x = to_numpy(x)
    spec = getattr(phi, f"{side}_spec")
    if spec is not None:
        omega, row_weights, offset, form = _plain(spec)
        return oracles.from_spec(x, spec.kind, omega, row_weights, offset, spec.amplitude, form, spec.normalised)
    if x.shape[-2] == 0:
        return oracles.explicit(np.zeros((*x.shape[:-1], phi.num_features_of(x.shape[-1]))))
    values = to_numpy(getattr(phi, side)(x))
    return oracles.explicit(values, np.abs(values).max(axis=-1, keepdims=True, initial=0.0) + np.zeros_like(values))


def _plain(spec):
    """What the oracle's formulas take of a spec beside its kind and amplitude."""
    form = None if spec.row_form is None else tuple(vars(spec.row_form).values())
    return spec.omega, spec.row_weights, spec.offset, form


def precision(phi, dtype, q, k):
    """Relative error allowed: 1e-5 (1e-12), or eps max|log phi| where that dominates."""
    sides = [(x, spec) for x, spec in ((q, phi.query_spec), (k, phi.key_spec)) if spec is not None]
    return max(BASE[dtype], 4 * EPS[dtype] * sum(oracles.reach(to_numpy(x), *_plain(spec)) for x, spec in sides))


def expected(phi, q, k, v, *, causal=False, key_mask=None, segment_ids=None):
    """-> the oracle's output, and how far from it a value may be: anywhere, where the denominator is all rounding."""
    dtype = v.dtype.name
    may = oracles.allowed(q.shape[-2], k.shape[-2], causal=causal, key_mask=key_mask, segment_ids=segment_ids)
    v64 = to_numpy(v)
    out, condition = oracles.linear_attention(num_features_of(phi, q, "query"), num_features_of(phi, k), v64, may)
    largest = np.max(np.abs(v64), axis=(-1, -2), keepdims=True, initial=0.0)
    relative = precision(phi, dtype, q, k) * condition[..., None]  # of the numerator and of the denominator
    with np.errstate(invalid="ignore"):
        error = relative * (largest + np.abs(out)) / (1 - relative)
    return out, np.where(relative < 0.5, error + ROUNDING[dtype] * np.abs(out), np.inf)


def close(actual, wanted, tolerance, what):
    actual, wanted = to_numpy(actual), to_numpy(wanted)
    assert actual.shape == wanted.shape, f"{what}: shape {actual.shape}, wanted {wanted.shape}"
    assert np.isfinite(actual).all(), f"{what}: {np.sum(~np.isfinite(actual))} values are not finite"
    excess = np.abs(actual - wanted) - tolerance
    assert (excess <= 0).all(), (
        f"{what}: off by {np.max(np.abs(actual - wanted)):.3g}, {np.max(excess):.3g} more than allowed"
    )


# ---- calls ----


def linear(phi, q, k, v, backend=REFERENCE, key_mask=None):
    a = backend.kind.asarray
    mask = None if key_mask is None else a(key_mask)
    return to_numpy(ka.linear_attention(a(q), a(k), a(v), phi, key_mask=mask, backend=backend.name))


def causal(phi, q, k, v, backend=REFERENCE, *, state=None, key_mask=None, segment_ids=None):
    a = backend.kind.asarray
    mask, ids = (None if x is None else a(x) for x in (key_mask, segment_ids))
    out, state = ka.causal_linear_attention(
        a(q), a(k), a(v), phi, state=state, key_mask=mask, segment_ids=ids, backend=backend.name
    )
    return to_numpy(out), state


def steps(phi, q, k, v, backend=REFERENCE, *, state=None, key_mask=None):
    """Token by token."""
    a = backend.kind.asarray
    if state is None:
        lead = np.broadcast_shapes(k.shape[:-2], v.shape[:-2])
        state = ka.initial_state(phi, lead, v.shape[-1], like=a(k))
    rows = []
    for t in range(v.shape[-2]):
        mask = None if key_mask is None else a(key_mask[..., t])
        out, state = ka.linear_attention_step(
            state, a(q[..., t, :]), a(k[..., t, :]), a(v[..., t, :]), phi, key_mask=mask, backend=backend.name
        )
        rows.append(to_numpy(out))
    return np.stack(rows, axis=-2), state


def key_state(phi, k, v, backend=REFERENCE, key_mask=None):
    a = backend.kind.asarray
    return ka.key_state(a(k), a(v), phi, key_mask=None if key_mask is None else a(key_mask), backend=backend.name)


def attend(phi, state, q, backend=REFERENCE):
    return to_numpy(ka.attend(state, backend.kind.asarray(q), phi, backend=backend.name))


def cut_mask(key_mask, cut):
    return (None, None) if key_mask is None else (key_mask[..., :cut], key_mask[..., cut:])


# ---- laws ----


def oracle_agrees(phi, q, k, v, backend=REFERENCE, *, key_mask=None, segment_ids=None):
    """The forms that exist for these shapes against the dense oracle."""
    if segment_ids is None:
        out, tolerance = expected(phi, q, k, v, key_mask=key_mask)
        close(linear(phi, q, k, v, backend, key_mask), out, tolerance, "linear_attention")
    if q.shape[-2] == k.shape[-2]:
        out, tolerance = expected(phi, q, k, v, causal=True, key_mask=key_mask, segment_ids=segment_ids)
        got, _ = causal(phi, q, k, v, backend, key_mask=key_mask, segment_ids=segment_ids)
        close(got, out, tolerance, "causal_linear_attention")


def forms_agree(phi, q, k, v, backend=REFERENCE, *, cut=1, key_mask=None):
    """causal = loop of steps = split and resume; last row and state = linear = key_state + attend = merged halves."""
    row, row_tolerance = expected(phi, q, k, v, causal=True, key_mask=key_mask)
    whole, state = causal(phi, q, k, v, backend, key_mask=key_mask)
    close(whole, row, row_tolerance, "causal against the oracle")
    looped, looped_state = steps(phi, q, k, v, backend, key_mask=key_mask)
    close(looped, whole, 2 * row_tolerance, "loop of steps against causal")

    early, late = cut_mask(key_mask, cut)
    first, resumed = causal(phi, q[..., :cut, :], k[..., :cut, :], v[..., :cut, :], backend, key_mask=early)
    second, resumed = causal(
        phi, q[..., cut:, :], k[..., cut:, :], v[..., cut:, :], backend, state=resumed, key_mask=late
    )
    close(np.concatenate([first, second], axis=-2), whole, 2 * row_tolerance, "split and resume against causal")

    full, tolerance = expected(phi, q, k, v, key_mask=key_mask)
    batched = linear(phi, q, k, v, backend, key_mask)
    close(batched[..., -1, :], whole[..., -1, :], 2 * row_tolerance[..., -1, :], "last row of linear against causal")
    summed = key_state(phi, k, v, backend, key_mask)
    halves = ka.merge_states(
        key_state(phi, k[..., :cut, :], v[..., :cut, :], backend, early),
        key_state(phi, k[..., cut:, :], v[..., cut:, :], backend, late),
    )
    for name, each in [
        ("key_state", summed),
        ("merge of halves", halves),
        ("causal's state", state),
        ("the steps' state", looped_state),
        ("the resumed state", resumed),
    ]:
        close(attend(phi, each, q, backend), full, tolerance, f"attend to {name}")


def blind_to_the_future(phi, q, k, v, backend=REFERENCE, *, t=0, growth=1.0, key_mask=None):
    """Rows up to t stay as they are when everything after t changes, keys to `growth` times their size."""
    row, tolerance = expected(phi, q, k, v, causal=True, key_mask=key_mask)
    before, _ = causal(phi, q, k, v, backend, key_mask=key_mask)
    close(before, row, tolerance, "causal against the oracle")
    other = [x.copy() for x in (q, k, v)]
    for x, factor in zip(other, (-1, growth, 3), strict=True):
        x[..., t + 1 :, :] = (factor * x[..., t + 1 :, :][..., ::-1, :]).astype(x.dtype)
    after, _ = causal(phi, *other, backend, key_mask=key_mask)
    changed, changed_tolerance = expected(phi, *other, causal=True, key_mask=key_mask)
    close(after, changed, changed_tolerance, "causal against the oracle, future changed")
    close(after[..., : t + 1, :], before[..., : t + 1, :], 2 * tolerance[..., : t + 1, :], "past rows")


def what_is_not_seen_may_be_anything(phi, q, k, v, ids, backend=REFERENCE, *, bad, filling, key_mask=None):
    """NaN or infinity in token `bad` reaches no row that does not see it: none before it, none in another segment."""
    _, tolerance = expected(phi, q, k, v, causal=True, key_mask=key_mask, segment_ids=ids)
    clean, clean_state = causal(phi, q, k, v, backend, key_mask=key_mask, segment_ids=ids)
    may = oracles.allowed(q.shape[-2], k.shape[-2], causal=True, segment_ids=ids)
    over = ids[bad] != ids[-1]  # is the token's segment over before the last begins?
    rows = attend(phi, clean_state, q, backend)
    for name in ("q", "k", "v"):
        spoilt = {"q": q, "k": k, "v": v}
        spoilt[name] = spoilt[name].copy()
        spoilt[name][..., bad, :2] = filling
        with np.errstate(invalid="ignore"):  # NumPy warns of what becomes of the rows that do see it
            out, state = causal(phi, *spoilt.values(), backend, key_mask=key_mask, segment_ids=ids)
        blind = np.arange(len(ids)) != bad if name == "q" else ~may[:, bad]
        what = f"{filling} in {name}[{bad}]"
        close(out[..., blind, :], clean[..., blind, :], 2 * tolerance[..., blind, :], what)
        if name == "v":
            lost = np.isnan(out) | np.isinf(out) | (clean == 0)
            assert key_mask is not None or lost[..., may[:, bad], :2].all(), f"{what} is lost on the way"
            close(out[..., 2:], clean[..., 2:], 2 * tolerance[..., 2:], f"{what}, other columns")
        if over or name == "q":
            small = 10 * BASE[v.dtype.name] * np.abs(v).max()
            close(attend(phi, state, q, backend), rows, small, f"{what}, the outgoing state")


def order_of_keys_is_free(phi, q, k, v, backend=REFERENCE, *, key_mask=None, seed=0):
    """Permuting the keys changes nothing in the bidirectional form."""
    order = np.random.default_rng(seed).permutation(k.shape[-2])
    mask = None if key_mask is None else key_mask[..., order]
    out, tolerance = expected(phi, q, k, v, key_mask=key_mask)
    close(linear(phi, q, k, v, backend, key_mask), out, tolerance, "linear")
    close(linear(phi, q, k[..., order, :], v[..., order, :], backend, mask), out, tolerance, "linear, keys permuted")


def masked_is_removed(phi, q, k, v, keep, backend=REFERENCE, filling=1e4):
    """A masked key is as good as none, whatever stands there; keep is (n,) bool."""
    k, v = k.copy(), v.copy()
    k[..., ~keep, :], v[..., ~keep, :] = filling, filling
    short_k, short_v = k[..., keep, :], v[..., keep, :]
    out, tolerance = expected(phi, q, short_k, short_v)
    close(linear(phi, q, k, v, backend, keep), out, tolerance, "linear")
    close(attend(phi, key_state(phi, k, v, backend, keep), q, backend), out, tolerance, "key_state")
    out, tolerance = expected(phi, q[..., keep, :], short_k, short_v, causal=True)
    got, state = causal(phi, q, k, v, backend, key_mask=keep)
    close(got[..., keep, :], out, tolerance, "causal")
    looped, _ = steps(phi, q, k, v, backend, key_mask=keep)
    close(looped[..., keep, :], out, tolerance, "loop of steps")
    assert np.isfinite(got).all()
    first = int(np.argmax(keep)) if keep.any() else len(keep)
    assert (got[..., :first, :] == 0).all(), "rows before the first key are exactly 0"
    assert (looped[..., :first, :] == 0).all(), "steps before the first key are exactly 0"
    assert keep.any() or (attend(phi, state, q, backend) == 0).all(), "an empty state attends to exactly 0"


def segments_are_separate(phi, q, k, v, ids, backend=REFERENCE, *, key_mask=None, history=None):
    """Packed sequences = one call each; the incoming state precedes the first, the outgoing one follows the last."""
    _, tolerance = expected(phi, q, k, v, causal=True, key_mask=key_mask, segment_ids=ids)
    past = None if history is None else key_state(phi, *history, backend)
    out, state = causal(phi, q, k, v, backend, state=past, key_mask=key_mask, segment_ids=ids)
    edges = [0, *(np.flatnonzero(ids[1:] != ids[:-1]) + 1), len(ids)]
    for lo, hi in pairwise(edges):
        mask = None if key_mask is None else key_mask[..., lo:hi]
        wanted, last = causal(phi, *(x[..., lo:hi, :] for x in (q, k, v)), backend, state=past, key_mask=mask)
        looser = 2 * tolerance[..., lo:hi, :] if past is None else BASE[v.dtype.name] * 100
        close(out[..., lo:hi, :], wanted, looser, f"segment {lo}:{hi}")
        past = None
    lo, mask = edges[-2], None if key_mask is None else key_mask[..., edges[-2] :]
    wanted, tolerance = expected(phi, q, k[..., lo:, :], v[..., lo:, :], key_mask=mask)
    if history is None or len(edges) > 2:
        close(attend(phi, state, q, backend), wanted, tolerance, "outgoing state")
    close(
        attend(phi, state, q, backend),
        attend(phi, last, q, backend),
        2 * tolerance,
        "outgoing state against the last call's",
    )


def merging_is_a_monoid(phi, q, k, v, backend=REFERENCE, *, cuts=(1, 2)):
    """Empty states change nothing; the order and the bracketing of merges do not matter."""
    out, tolerance = expected(phi, q, k, v)
    i, j = cuts
    a, b, c = (key_state(phi, k[..., s, :], v[..., s, :], backend) for s in (slice(0, i), slice(i, j), slice(j, None)))
    lead = np.broadcast_shapes(k.shape[:-2], v.shape[:-2])
    empty = ka.initial_state(phi, lead, v.shape[-1], like=backend.kind.asarray(k))
    merge = ka.merge_states
    for name, state in [
        ("(ab)c", merge(merge(a, b), c)),
        ("a(bc)", merge(a, merge(b, c))),
        ("c(ba)", merge(c, merge(b, a))),
        ("0a(b0c)", merge(merge(empty, a), merge(merge(b, empty), c))),
    ]:
        close(attend(phi, state, q, backend), out, tolerance, name)
    for x, y in zip(merge(empty, a)[:3], a[:3], strict=True):
        np.testing.assert_array_equal(
            to_numpy(x), to_numpy(y), err_msg="merging with the empty state changes nothing, to the bit"
        )
    for x, y in zip(merge(a, empty)[:3], a[:3], strict=True):
        np.testing.assert_array_equal(
            to_numpy(x), to_numpy(y), err_msg="merging with the empty state changes nothing, to the bit"
        )
    nothing = merge(empty, empty)
    assert all(not np.isnan(to_numpy(x)).any() for x in nothing[:3])
    assert (attend(phi, nothing, q, backend) == 0).all()


def normalisers_are_true(phi, q, k, v, backend=REFERENCE, *, cut, key_mask=None, segment_ids=None):
    """Outputs times their normalisers are the dense numerators; outputs over parts of the keys merge by them."""
    xp = backend.kind
    q_, k_, v_ = (xp.asarray(x) for x in (q, k, v))
    mask, ids = (None if x is None else xp.asarray(x) for x in (key_mask, segment_ids))
    out, normaliser, state = ka.attention.causal_with_lse(
        q_, k_, v_, phi, key_mask=mask, segment_ids=ids, backend=backend.name
    )
    plain, last = ka.causal_linear_attention(q_, k_, v_, phi, key_mask=mask, segment_ids=ids, backend=backend.name)
    for a, b in zip((out, *state[:3]), (plain, *last[:3]), strict=True):
        np.testing.assert_array_equal(to_numpy(a), to_numpy(b), err_msg="asking for normalisers changes nothing")
    n, length = q.shape[-2], k.shape[-2]
    seen = oracles.allowed(n, length, causal=True, key_mask=key_mask, segment_ids=segment_ids)
    _numerators_agree(phi, q, k, v, seen, out, normaliser, "causal")
    if segment_ids is not None:
        return
    parts = [(slice(0, cut), key_mask), (slice(cut, None), key_mask)]
    total, weight = 0.0, 0.0
    peak = np.full(np.broadcast_shapes(q.shape[:-1], (*k.shape[:-2], 1)), -np.inf)
    found = []
    for part, keep in parts:
        own = None if keep is None else xp.asarray(np.ascontiguousarray(keep[..., part]))
        summary = ka.key_state(k_[..., part, :], v_[..., part, :], phi, key_mask=own, backend=backend.name)
        found.append(ka.attention.attend_with_lse(summary, q_, phi, backend=backend.name))
        peak = np.maximum(peak, to_numpy(found[-1][1].log))
    peak = np.where(np.isinf(peak), 0.0, peak)
    for each, (log, sign) in found:
        z = to_numpy(sign) * np.exp(to_numpy(log) - peak)
        total, weight = total + z[..., None] * to_numpy(each), weight + z
    wanted, tolerance = expected(phi, q, k, v, key_mask=key_mask)
    with np.errstate(invalid="ignore", divide="ignore"):
        merged = np.where((weight == 0)[..., None], 0.0, total / weight[..., None])
    close(merged, wanted, 3 * tolerance, "parts merged by their normalisers")


def _numerators_agree(phi, q, k, v, seen, out, normaliser, what):
    """Compare out times the normaliser, and the normaliser itself, with dense sums in the log domain."""
    fq, fk = num_features_of(phi, q, "query"), num_features_of(phi, k)
    logs = fq.log[..., :, None, :] + fk.log[..., None, :, :]  # (..., n, l, M)
    logs = np.where(np.broadcast_to(seen, logs.shape[:-1])[..., None], logs, -np.inf)
    peak = np.max(logs, axis=(-1, -2), keepdims=True)
    peak = np.where(np.isinf(peak), 0.0, peak)
    terms = fq.sign[..., :, None, :] * fk.sign[..., None, :, :] * np.exp(logs - peak)
    weights, sizes = np.sum(terms, axis=-1), np.sum(np.abs(terms), axis=-1)  # (..., n, l)
    eps = 4 * precision(phi, v.dtype.name, q, k) + ROUNDING[v.dtype.name]
    log, sign = (to_numpy(x) for x in normaliser)
    got = sign * np.exp(log - peak[..., 0, 0])
    assert ((sign == 0) == np.isneginf(log)).all(), what
    close(got, weights.sum(-1), eps * (sizes.sum(-1) + np.abs(weights.sum(-1))), f"{what}: normalisers")
    numerators, bound = weights @ to_numpy(v), sizes @ np.abs(to_numpy(v))
    close(got[..., None] * to_numpy(out), numerators, eps * (bound + np.abs(numerators)), f"{what}: numerators")


def in_the_hull_of_the_values(phi, q, k, v, backend=REFERENCE):
    """Positive features: normalisers above 0, so that outputs lie between the smallest and the largest value seen."""
    slack = 1e-5 * np.abs(v).max()
    low, high = np.minimum.accumulate(v, axis=-2), np.maximum.accumulate(v, axis=-2)
    for name, out in [("causal", causal(phi, q, k, v, backend)[0]), ("loop of steps", steps(phi, q, k, v, backend)[0])]:
        assert np.isfinite(out).all(), name
        assert ((out >= low - slack) & (out <= high + slack)).all(), name
        np.testing.assert_allclose(
            out[..., 0, :], v[..., 0, :], rtol=1e-5, atol=slack, err_msg=f"{name}: one key gives its value"
        )
    out = linear(phi, q, k, v, backend)
    assert np.isfinite(out).all()
    assert ((out >= low[..., -1:, :] - slack) & (out <= high[..., -1:, :] + slack)).all()


def linear_in_the_values(phi, q, k, v, backend=REFERENCE):
    """A sum of values gives the sum of outputs, and constant values come back as they are (where any key weighs)."""
    w = np.ascontiguousarray(v[..., ::-1, :])
    mixed = (0.5 * v - 2 * w).astype(v.dtype)
    _, tolerance = expected(phi, q, k, mixed, causal=True)
    _, one = expected(phi, q, k, v, causal=True)
    a, b, c = (causal(phi, q, k, x, backend)[0] for x in (v, w, mixed))
    close(c, 0.5 * a - 2 * b, 2 * tolerance + 5 * np.max(one, axis=-2, keepdims=True), "causal")
    ones, ones_tolerance = expected(phi, q, k, np.ones_like(v), causal=True)
    close(causal(phi, q, k, np.ones_like(v), backend)[0], ones, ones_tolerance, "constant values")


def arrays(seed, *shapes, dtype="float32", scale=1.0):
    """Normal arrays, rounded to dtype."""
    rng = np.random.default_rng(seed)
    return [(scale * rng.standard_normal(shape)).astype(numpy_dtype(dtype)) for shape in shapes]
