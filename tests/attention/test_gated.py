"""Gated linear attention and the delta rule: against the recurrence of tokens in float64, and the laws of states."""

import tracemalloc
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernattn as ka
from gated import GATES, RULES, D, E, N, close, draw, recur
from kernattn.attention import GatedState, GatedStretch
from xp import KINDS, to_numpy


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(("rule", "gate"), [*product(RULES, GATES)])
def test_recurrence(rule, gate, backend):
    for seed, l2 in enumerate((False, True)):
        arrays, options = draw(rule, gate, seed=seed, l2=l2)
        state = GatedState(np.random.default_rng(5).standard_normal((2, 1, D, E)))
        out, after = ka.gated_linear_attention(*arrays, **options, state=state, scale=0.7, backend=backend)
        wanted, s = recur(*arrays, **options, state=state, scale=0.7)
        close(out, wanted)
        close(after.s, s)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(("rule", "gate"), [*product(RULES[:2], GATES)])
def test_strong_gates_lose_no_digits(rule, gate, dtype):
    """Of 300 tokens: at most 1e-6 of the largest output, or the rounding of the dtype."""
    arrays, options = draw(rule, gate, n=300, dtype=dtype)
    out, after = ka.gated_linear_attention(*arrays, **options)
    wanted, s = recur(*arrays, **options)
    assert out.dtype == dtype
    assert after.s.dtype == np.float32
    close(out, wanted, 1e-6 if dtype == "float32" else 6e-4)
    close(after.s, s, 1e-6)


@pytest.mark.parametrize(("rule", "gate"), [*product(RULES[:2], GATES)])
def test_rows_of_every_length(rule, gate):
    """Of less than a vector to more than three lines of the cache, whose number in a tile is odd."""
    for d, e in ((7, 21), (24, 40), (33, 8), (50, 49)):
        arrays, options = draw(rule, gate, n=20, d=d, e=e, dtype="float32")
        out, after = ka.gated_linear_attention(*arrays, **options)
        wanted, s = recur(*arrays, **options)
        close(out, wanted, 1e-6)
        close(after.s, s, 1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("rule", "gate"), [*product(RULES, GATES)])
def test_few_tokens(rule, gate, dtype):
    """In tiles of as few as four rows, which blocks of products fill."""
    for n in range(2, 10):
        arrays, options = draw(rule, gate, n=n, dtype=dtype)
        out, after = ka.gated_linear_attention(*arrays, **options)
        wanted, s = recur(*arrays, **options)
        close(out, wanted, 1e-12 if dtype == "float64" else 1e-6)
        close(after.s, s, 1e-12 if dtype == "float64" else 1e-6)


def test_equal_keys_at_the_largest_beta():
    """Every second token undoes the one before: errors add up to what the rule makes of rounding, and no more."""
    rng = np.random.default_rng(0)
    k = np.broadcast_to(rng.standard_normal(D), (512, D)).astype("f4")
    k, v = k / np.linalg.norm(k, axis=-1, keepdims=True), rng.standard_normal((512, E)).astype("f4")
    beta = np.full(512, 2, "f4")
    close(ka.gated_linear_attention(k, k, v, beta=beta)[0], recur(k, k, v, beta=beta)[0], 1e-4)


@given(n=st.integers(1, 70), cut=st.integers(1, 69), rule=st.sampled_from(RULES), gate=st.sampled_from(GATES))
def test_split_resume_merge_and_step(n, cut, rule, gate):
    """One call = two with the state between them = stretches merged in order = segments = token by token."""
    (q, k, v), options = draw(rule, gate, n=n, heads=(1, 2))
    cut = min(cut, n)
    rows = {"g": -1, "beta": -1, "gk": -2}

    def part(at):
        own = {}
        for name, x in options.items():
            if name == "erase":
                own[name] = tuple(y[..., at, :] for y in x)
            else:
                own[name] = x[..., at] if rows[name] == -1 else x[..., at, :]
        return (q[..., at, :], k[..., at, :], v[..., at, :]), own

    out, last = ka.gated_linear_attention(q, k, v, **options)
    begin, own = part(slice(0, cut))
    first, state = ka.gated_linear_attention(*begin, **own)
    close(first, out[..., :cut, :])
    stretch = ka.attention.gated_state(*begin[1:], **own)
    close(stretch.s, state.s)
    if cut < n:
        rest, more = part(slice(cut, n))
        then, state = ka.gated_linear_attention(*rest, **more, state=state)
        close(then, out[..., cut:, :])
        tail = ka.attention.gated_state(*rest[1:], **more)
        both = ka.merge_states(stretch, tail)
        assert isinstance(both, GatedStretch)
        close(both.s, last.s)
        middle = ka.merge_states(GatedState(stretch.s), tail)
        assert isinstance(middle, GatedState)
        close(middle.s, last.s)
        whole = ka.attention.gated_state(k, v, **options)
        close(both.through @ np.ones((D, 1)), whole.through @ np.ones((D, 1)), 1e-10) if rule != "decay" else close(
            both.through, whole.through
        )
        ids = np.arange(n) >= cut
        apart, after = ka.gated_linear_attention(q, k, v, **options, segment_ids=ids.astype(np.int64))
        close(apart[..., :cut, :], first)
        close(after.s, tail.s)
    close(state.s, last.s)
    state = None
    for t in range(n):
        token, own = part(t)
        one, state = ka.gated_linear_attention_step(state, *token, **own)
        close(one, out[..., t, :])


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(("rule", "gate"), [*product(RULES, GATES[1:])])
def test_masked_tokens_change_nothing(rule, gate, backend):
    """They are as if they were not there, whatever stands in them; so are their gradients."""
    (q, k, v), options = draw(rule, gate, heads=(2, 1))
    mask = np.random.default_rng(3).random(N) < 0.6
    wanted, s = recur(q[..., mask, :], k[..., mask, :], v[..., mask, :], **_at(options, mask))
    for x in (k, v, *options.get("erase", ()), *(options[name] for name in ("g", "gk", "beta") if name in options)):
        axis = -1 if x.shape[-1] == N else -2
        np.moveaxis(x, axis, 0)[~mask] = np.nan
    if "g" in options:
        options["g"][..., ~mask] = -np.inf  # values are looked at, and -inf is one
    call = (q, k, v), {**options, "key_mask": mask, "backend": backend}
    out, after = ka.gated_linear_attention(*call[0], **call[1])
    close(out[..., mask, :], wanted)
    close(after.s, s)
    _, pullback = ka.vjp(ka.gated_linear_attention, *call[0], **call[1])
    found = pullback((np.where(mask[:, None], 1.0, 0.0) * np.ones_like(out), None))
    for x in (found.k, found.v):
        assert np.isfinite(x).all()
        assert not x[..., ~mask, :].any()


def test_what_is_masked_chooses_no_way():
    """A channel that forgets all, and rows that are not finite: together they go another, longer way."""
    (q, k, v), options = draw("delta", "none", heads=(2, 1))
    gk, mask = np.where(np.arange(N)[:, None] == 5, -np.inf, -0.1 * np.ones_like(k)), np.arange(N) != 3
    bits = []
    for x in (0.0, np.nan):
        rows = [np.where(mask[:, None], each, x) for each in (k, v)]
        found, pullback = ka.vjp(ka.gated_linear_attention, q, *rows, gk=gk, key_mask=mask, **options)
        slopes = pullback((np.ones_like(found[0]), None))
        bits.append([found[0], found[1].s, slopes.q, slopes.k, slopes.v, slopes.gk])
    for one, other in zip(*bits, strict=True):
        np.testing.assert_array_equal(one, other)


def _at(options, mask):
    def rows(x):
        return x[..., mask] if x.shape[-1] == N else x[..., mask, :]

    return {name: tuple(map(rows, x)) if isinstance(x, tuple) else rows(x) for name, x in options.items()}


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_blind_to_the_future(backend):
    (q, k, v), options = draw("delta", "channel")
    out, _ = ka.gated_linear_attention(q, k, v, **options, backend=backend)
    k[..., 20:, :], v[..., 20:, :] = k[..., :17, :] * 1e3, 1e6
    options["gk"][..., 20:, :] = -1.0
    again, _ = ka.gated_linear_attention(q, k, v, **options, backend=backend)
    np.testing.assert_array_equal(again[..., :20, :], out[..., :20, :])
    for x, other in ((v, -1), (k, -1), (options["beta"][..., None], 1), (options["gk"], -1)):
        x[..., 21, 0] = np.nan
        again, _ = ka.gated_linear_attention(q, k, v, **options, backend=backend)
        close(again[..., :20, :], out[..., :20, :])
        assert np.isfinite(again[..., 20, :]).all()
        x[..., 21, 0] = other


@pytest.mark.parametrize("xp", [xp for xp in KINDS if xp is not np], ids=str)
def test_other_libraries(xp):
    arrays, options = draw("delta", "scalar", dtype="float32")
    wanted, s = recur(*arrays, **options)
    own = {name: xp.asarray(x) for name, x in options.items()}
    out, after = ka.gated_linear_attention(*map(xp.asarray, arrays), **own)
    assert type(out) is type(own["g"])
    close(to_numpy(out), wanted, 1e-6)
    close(to_numpy(after.s), s, 1e-6)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize(("rule", "gate"), [*product(RULES, GATES)])
def test_segments_do_not_see_each_other_s_nan(rule, gate, backend):
    (q, k, v), options = draw(rule, gate, heads=(2, 1))
    ids = np.repeat([0, 1, 2], [9, 11, N - 20])
    part = {name: tuple(y[..., 20:, :] for y in x) if name == "erase" else x for name, x in options.items()}
    part = {
        name: x[..., 20:] if name in ("g", "beta") else x[..., 20:, :] if name == "gk" else x
        for name, x in part.items()
    }
    wanted, s = recur(q[..., 20:, :], k[..., 20:, :], v[..., 20:, :], **part)
    v[..., 3, :], k[..., 12, 0], v[..., 19, :] = np.inf, np.nan, np.nan
    call = (q, k, v), {**options, "segment_ids": ids, "backend": backend}
    out, after = ka.gated_linear_attention(*call[0], **call[1])
    close(out[..., 20:, :], wanted)
    close(after.s, s)
    _, pullback = ka.vjp(ka.gated_linear_attention, *call[0], **call[1])
    found = pullback((np.where(ids == 2, 1.0, 0.0)[:, None] * np.ones_like(out), None))
    for x in (found.q, found.k, found.v):
        assert np.isfinite(x[..., 20:, :]).all()
    for x in (k, v):
        x[..., :20, :], x[..., 30, :] = 1.0, np.nan
    _, pullback = ka.vjp(ka.gated_linear_attention, q, k, v, **call[1])
    for x in pullback((np.ones_like(out), None))[:3]:
        assert np.isfinite(x[..., :20, :]).all()


@pytest.mark.parametrize(("rule", "gate"), [*product(RULES, GATES)])
def test_rows_that_lie_apart(rule, gate):
    """Heads last but one in memory, every second row or number, rows backwards, rows repeated: the same bits."""
    (q, k, v), options = draw(rule, gate, heads=(2, 3), l2=rule == "delta")
    options |= {"erase": tuple(options["erase"])} if rule == "general" else {}
    wanted, pullback = ka.vjp(ka.gated_linear_attention, q, k, v, **options)
    g = np.random.default_rng(8).standard_normal(wanted[0].shape)
    slopes = pullback((g, None))

    def between(x):
        return np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2)

    def every_other(x):
        return np.repeat(x, 2, axis=-1)[..., ::2]

    def every_other_row(x):
        return np.repeat(x, 2, axis=2)[:, :, ::2]

    def backwards(x):
        return np.ascontiguousarray(x[::-1, :, ::-1])[::-1, :, ::-1]

    for lay in (between, every_other, every_other_row, backwards):
        laid = {
            name: tuple(map(lay, x)) if name == "erase" else x if x is True else lay(x) for name, x in options.items()
        }
        out, pullback = ka.vjp(ka.gated_linear_attention, lay(q), lay(k), lay(v), **laid)
        np.testing.assert_array_equal(out[0], wanted[0])
        found = pullback((lay(g), None))
        for name in ("q", "k", "v", *(name for name in options if name != "l2_normalise")):
            np.testing.assert_array_equal(getattr(found, name), getattr(slopes, name))
    same = np.broadcast_to(k[:1, :, :1], k.shape)
    out, pullback = ka.vjp(ka.gated_linear_attention, q, same, v, **options)
    wanted, slopes = ka.vjp(ka.gated_linear_attention, q, same.copy(), v, **options)
    np.testing.assert_array_equal(out[0], wanted[0])
    np.testing.assert_array_equal(pullback((g, None)).k, slopes((g, None)).k)


def test_rows_of_heads_between_tokens_are_not_copied():
    """What a call holds besides its results is less than one of four arrays."""
    x = np.random.default_rng(0).standard_normal((1, 512, 4, 64), dtype="f4").swapaxes(1, 2)
    logs, held = -np.abs(x), []
    for _ in range(3):  # the first one compiles, and what it leaves to other threads may last until the second
        tracemalloc.start()
        out, state = ka.gated_linear_attention(x, x, x, gk=logs)
        held.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert min(held) - out.nbytes - state.s.nbytes < x.nbytes
