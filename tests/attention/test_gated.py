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
from kernattn.errors import DTypeError, EmptyInputError, ParameterError, ShapeError, StateMismatchError
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


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"g": np.full((1, 9), 0.1)}, ParameterError, "g must be natural logarithms of decays, at most 0; got 0.1"),
        ({"gk": np.full((1, 9, 4), 1e-9)}, ParameterError, "gk must be natural logarithms"),
        ({"g": np.zeros((1, 8))}, ShapeError, r"g must be \(..., 9\) or \(..., 1\)"),
        ({"g": np.zeros((1, 9, 4))}, ShapeError, "decays of each channel are gk"),
        ({"gk": np.zeros((1, 9))}, ShapeError, r"gk must be \(..., 9, 4\)"),
        ({"beta": np.zeros((9, 2)), "q": np.zeros((2, 9, 4))}, ShapeError, "heads come before tokens: transpose"),
        ({"gk": np.zeros((9, 2, 4)), "q": np.zeros((2, 9, 4))}, ShapeError, "heads come before tokens: transpose"),
        ({"g": np.zeros(2), "q": np.zeros((2, 9, 4))}, ShapeError, r"a number for each head is \(heads, 1\)"),
        ({"erase": (np.zeros((1, 9, 4)),) * 3}, ParameterError, r"got a tuple of an array float64\(1, 9, 4\),"),
        ({"state": (0, GatedState(np.zeros((1, 4, 2))))}, DTypeError, "outputs and the state: give the second"),
        ({"beta": np.zeros((3, 1, 9), "f4")}, DTypeError, "beta must have dtype float64; got float32"),
        ({"beta": np.zeros((2, 9)), "k": np.zeros((3, 9, 4))}, ShapeError, "the leading axes must broadcast"),
        ({"erase": np.zeros((2, 1, 9, 4))}, ParameterError, "erase must be a pair of arrays"),
        ({"erase": (np.zeros((1, 9, 4)),) * 2, "beta": np.zeros((1, 9))}, ParameterError, "exclude each other"),
        ({"k": np.zeros((1, 8, 4)), "v": np.zeros((1, 8, 2))}, ShapeError, "the number of tokens"),
        ({"q": np.zeros((1, 9, 3))}, ShapeError, r"the last axis \(d\)"),
        ({"state": np.zeros((1, 4, 2))}, DTypeError, r"got ndarray; an array .* by ka.attention.GatedState\(array\)"),
        ({"state": GatedStretch(np.zeros((1, 4, 2)), np.ones((1, 1)))}, DTypeError, "got GatedStretch; merge_states"),
        ({"state": {}}, DTypeError, "state must be a GatedState.*; got dict$"),
        ({"state": GatedState(np.zeros((2, 4, 2)))}, StateMismatchError, r"\(1, 4, 2\); got \(2, 4, 2\)"),
        ({"state": GatedState(np.zeros((1, 4, 2), "f4"))}, DTypeError, "is float64; got float32"),
        ({"erase": (None, np.zeros((1, 9, 4)))}, ParameterError, "got None for one of them"),
        ({"g": np.zeros((0, 9))}, EmptyInputError, "g must not be empty"),
        ({"scale": float("nan")}, ParameterError, "scale must be a finite number"),
        ({"l2_normalise": 1}, (DTypeError, ParameterError), "l2_normalise must be"),
    ],
)
def test_refusals(change, error, says):
    arguments = {"q": np.zeros((1, 9, 4)), "k": np.zeros((1, 9, 4)), "v": np.zeros((1, 9, 2))} | change
    with pytest.raises(error, match=says):
        ka.gated_linear_attention(**arguments)


def test_a_state_comes_before_a_stretch():
    state = GatedState(np.zeros((2, 2)))
    with pytest.raises(StateMismatchError, match="after a gated state comes a GatedStretch"):
        ka.merge_states(state, state)
    for s, through in (((2, 1), np.zeros((3, 1))), ((2,), np.zeros(2)), ((2, 1), np.zeros((2, 1), "f4"))):
        with pytest.raises(StateMismatchError, match="through of b must be"):
            ka.merge_states(GatedState(np.zeros(s)), GatedStretch(np.zeros(s), through))
    with pytest.raises(DTypeError, match=r"a\.through must be an array"):
        ka.merge_states(GatedStretch(np.zeros((2, 1)), None), GatedStretch(np.zeros((2, 1)), np.zeros((2, 1))))


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"q": np.zeros((0, 3))}, EmptyInputError, r"q must not be empty; got shape \(0, 3\)"),
        ({"g": np.zeros(0)}, EmptyInputError, r"g must not be empty; got shape \(0,\)"),
        ({"gk": np.zeros((2, 4))}, ShapeError, r"gk must be \(..., 3\), for a query of shape \(2, 3\); .* \(2, 4\)"),
        ({"erase": (np.zeros((2, 3)), np.zeros(4))}, ShapeError, r"erase\[1\] must be \(..., 3\), .* shape \(4,\)"),
    ],
)
def test_a_step_names_shapes_as_they_were_given(change, error, says):
    """Without an axis of tokens, which no token has."""
    arguments = {name: np.zeros((2, 3)) for name in "qkv"} | change
    with pytest.raises(error, match=says):
        ka.gated_linear_attention_step(None, **arguments)


def test_a_step_takes_a_list_as_the_pair_that_erases():
    q, k, v, a, b = np.random.default_rng(4).standard_normal((5, 2, D))
    pair, _ = ka.gated_linear_attention_step(None, q, k, v, erase=(a, b))
    same, _ = ka.gated_linear_attention_step(None, q, k, v, erase=[a, b])
    np.testing.assert_array_equal(pair, same)


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


def test_keys_too_long_for_a_delta_rule_are_told():
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 2, 600, 16)).astype(np.float32)
    beta = rng.uniform(0, 1, (2, 600)).astype(np.float32)
    with pytest.warns(UserWarning, match=r"beta k\^T k is up to .*, where above 2 .*l2_normalise=True"):
        out, _ = ka.gated_linear_attention(q, k, v, beta=beta)
    assert not np.isfinite(out[:, -1]).any()
    assert np.isfinite(ka.gated_linear_attention(q, k, v, beta=beta, l2_normalise=True)[0]).all()
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    assert np.isfinite(ka.gated_linear_attention(q, k, v, beta=2 * beta)[0]).all()
    v[0, 3] = np.nan  # not from growth: no warning
    assert np.isnan(ka.gated_linear_attention(q, k, v, beta=beta)[0][0, 3:]).all()


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_shares_outside_0_to_2_are_told(library):
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 2, 9, D))
    beta, mask = rng.uniform(0, 2, (2, 9)), np.arange(9) != 4
    arrays = [q, k, v, beta]
    if library == "torch":
        torch = pytest.importorskip("torch")
        arrays, mask = [torch.tensor(x, requires_grad=True) for x in arrays], torch.tensor(mask)
    *rows, beta = arrays
    options = {"key_mask": mask, "l2_normalise": True}
    ka.gated_linear_attention(*rows, beta=beta, **options)
    for factor, says in ((3, "is .* to 5.* here"), (-1, "is -1.* here.* of logits")):
        with pytest.warns(UserWarning, match=rf"in \[0, 2\] for keys of norm 1, and {says}"):
            ka.gated_linear_attention(*rows, beta=factor * beta, **options)
    ka.gated_linear_attention(rows[0], rows[1] / 100, rows[2], beta=3 * beta)  # short keys
    masked = beta.detach().clone() if library == "torch" else beta.copy()
    masked[:, 4] = -7
    ka.gated_linear_attention(*rows, beta=masked, **options)


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
