"""Patterns against their definitions, and attention over them against the dense oracle."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernattn as ka
import laws
import pattern_oracles as oracles
from covering import turns
from kernattn.errors import DTypeError, ParameterError, ShapeError
from seam import ALL, CAUSAL
from visited import counted
from xp import backends, dtype_name, to_numpy

P, L = ka.patterns, 180
IDS, SCATTERED = np.repeat([3, 1, 2], [100, 70, 10]), np.arange(L) * 7 % 5
ORDER = np.random.default_rng(0).permutation(8)
EACH = np.stack([ORDER, ORDER[::-1]])
HASHED = np.random.default_rng(3).standard_normal((2, L, 5))
ROTATIONS = np.random.default_rng(4).standard_normal((3, 5, 4))
SEEN = np.random.default_rng(5).random((2, L, L)) < 0.2
SEEN[:, :70, 60:150] = False
LOW, HIGH = np.random.default_rng(6).integers(-9, L + 9, size=(2, 2, L))
PATTERNS = {  # one mask, or one a head
    "local": (P.local(20), lambda i, j: oracles.local(i, j, 20, 20)),
    "local to one side": (P.local(100, 0), lambda i, j: oracles.local(i, j, 100, 0)),
    "dilated": (P.local(40, 9, dilation=3), lambda i, j: oracles.local(i, j, 40, 9, 3)),
    "dilated in long classes": (P.local(60, dilation=2), lambda i, j: oracles.local(i, j, 60, 60, 2)),
    "dilated beyond": (P.local(500, dilation=400), lambda i, j: i == j),
    "strided": (P.strided(13, 13), lambda i, j: oracles.strided(i, j, 13, 13)),
    "strided sparsely": (P.strided(1, 50), lambda i, j: oracles.strided(i, j, 1, 50)),
    "fixed": (P.fixed(16, 3), lambda i, j: oracles.fixed(i, j, 16, 3)),
    "permuted": (P.block_permutation(25, ORDER), lambda i, j: oracles.block_permutation(i, j, 25, ORDER)),
    "permuted a head": (
        P.block_permutation(24, EACH),
        *(lambda i, j, p=p: oracles.block_permutation(i, j, 24, p) for p in EACH),
    ),
    "longformer": (P.longformer(10, [0, 1, 2]), lambda i, j: oracles.longformer(i, j, 10, 10, [0, 1, 2])),
    "longformer scattered": (
        P.longformer(10, [170, 5, 90], right=3),
        lambda i, j: oracles.longformer(i, j, 10, 3, [5, 90, 170]),
    ),
    "longformer dilated": (
        P.longformer(12, (4,), dilation=[1, 3]),
        *(lambda i, j, r=r: oracles.longformer(i, j, 12, 12, [4], r) for r in (1, 3)),
    ),
    "longformer without": (P.longformer(5, []), lambda i, j: oracles.local(i, j, 5, 5)),
    "bigbird without": (P.bigbird(16, 0, rng=0), lambda i, j: oracles.bigbird_always(i, j, 16, L)),
    "image 1-D": (P.image_1d(70, 30), lambda i, j: oracles.image_1d(i, j, 70, 30)),
    "image 2-D": (
        P.image_2d((10, 18), (4, 5), 2),
        lambda i, j: oracles.image_2d(i, j, (10, 18), (4, 5), (2, 2, 2), "raster"),
    ),
    "image 2-D in large tiles": (
        P.image_2d((18, 10), (9, 10), (1, 0, 3)),
        lambda i, j: oracles.image_2d(i, j, (18, 10), (9, 10), (1, 0, 3), "raster"),
    ),
    "image 2-D in tiles": (
        P.image_2d((10, 18), (4, 5), (3, 2, 1), order="tiles"),
        lambda i, j: oracles.image_2d(i, j, (10, 18), (4, 5), (3, 2, 1), "tiles"),
    ),
    "axial": (P.axial((6, 5, 6), 1), lambda i, j: oracles.axial(i, j, (6, 5, 6), 1)),
    "axial in rows": (P.axial((6, 30), -1), lambda i, j: oracles.axial(i, j, (6, 30), 1)),
    "neighborhood": (P.neighborhood((12, 15), (3, 5)), lambda i, j: oracles.neighborhood(i, j, (12, 15), (3, 5))),
    "neighborhood of 3-D": (P.neighborhood((5, 6, 6), 4), lambda i, j: oracles.neighborhood(i, j, (5, 6, 6), (4,) * 3)),
    "sinks": (P.sinks(4), lambda i, j: oracles.sinks(i, j, 4)),
    "prefix": (P.prefix(30), lambda i, j: oracles.prefix(i, j, 30)),
    "documents": (P.documents(IDS), lambda i, j: oracles.documents(i, j, IDS)),
    "documents a head": (
        P.documents(np.stack([IDS, SCATTERED])),
        *(lambda i, j, ids=ids: oracles.documents(i, j, ids) for ids in (IDS, SCATTERED)),
    ),
    "documents scattered": (P.documents(SCATTERED.tolist()), lambda i, j: oracles.documents(i, j, SCATTERED)),
    "hashed": (
        P.lsh(HASHED, rotations=ROTATIONS, chunk=24),
        *(lambda i, j, x=x: oracles.lsh(i, j, x, ROTATIONS, 24) for x in HASHED),
    ),
    "hashed in long chunks": (
        P.lsh(HASHED[0], rotations=ROTATIONS[:2], chunk=70),
        lambda i, j: oracles.lsh(i, j, HASHED[0], ROTATIONS[:2], 70),
    ),
    "hashed and near": (
        P.local(5) | P.lsh(HASHED[1], rotations=ROTATIONS[:2], chunk=9),
        lambda i, j: oracles.local(i, j, 5, 5) | oracles.lsh(i, j, HASHED[1], ROTATIONS[:2], 9),
    ),
    "masked": (P.from_mask(SEEN[0]), lambda i, j: SEEN[0][i, j]),
    "masked a head": (P.from_mask(SEEN), *(lambda i, j, seen=seen: seen[i, j] for seen in SEEN)),
    "masked and near": (
        P.from_mask(SEEN[1]) & P.local(30) | P.sinks(2),
        lambda i, j: SEEN[1][i, j] & oracles.local(i, j, 30, 30) | (j < 2),
    ),
    "stretches": (P.from_intervals(LOW[0], HIGH[0]), lambda i, j: (LOW[0][i] <= j) & (j < HIGH[0][i])),
    "stretches a head": (
        P.from_intervals(LOW, HIGH),
        *(lambda i, j, low=low, high=high: (low[i] <= j) & (j < high[i]) for low, high in zip(LOW, HIGH, strict=True)),
    ),
    "union": (P.sinks(3) | P.local(20, 5), lambda i, j: oracles.sinks(i, j, 3) | oracles.local(i, j, 20, 5)),
    "union of orders": (
        P.local(9) | P.local(60, dilation=4) | P.fixed(32, 1),
        lambda i, j: oracles.local(i, j, 9, 9) | oracles.local(i, j, 60, 60, 4) | oracles.fixed(i, j, 32, 1),
    ),
    "intersection": (
        P.documents(IDS) & P.local(20, 5),
        lambda i, j: oracles.documents(i, j, IDS) & oracles.local(i, j, 20, 5),
    ),
    "intersection of orders": (
        P.strided(9, 9) & P.documents(SCATTERED),
        lambda i, j: oracles.strided(i, j, 9, 9) & oracles.documents(i, j, SCATTERED),
    ),
    "one a head": (
        P.per_head([P.local(3), P.strided(5, 5)]) | P.sinks(1),
        lambda i, j: oracles.local(i, j, 3, 3) | (j < 1),
        lambda i, j: oracles.strided(i, j, 5, 5) | (j < 1),
    ),
}
DTYPES = ["float16", "float32", "float64"]


@pytest.fixture(params=backends("block_softmax"), ids=repr, scope="session")
def softmax_backend(request):
    return request.param


def masks(name, n, causal):
    """(heads, n, L) by definition."""
    i, j = np.arange(L - n, L)[:, None], np.arange(L)
    return np.stack([sees(i, j) & (not causal or j <= i) for sees in PATTERNS[name][1:]])


@pytest.mark.parametrize(("name", "n", "causal"), turns(PATTERNS, [(L, False), (L, True), (77, False), (1, True)]))
def test_plans_are_the_definition(name, n, causal):
    plan = PATTERNS[name][0].plan(n, L, causal=causal)
    wanted = masks(name, n, causal)
    assert len(plan.heads) == len(wanted)
    for head, mask in enumerate(wanted):
        np.testing.assert_array_equal(counted(plan, head), mask)
        np.testing.assert_array_equal(plan.mask(head), mask)
    assert plan.pairs == wanted.sum() / len(wanted)
    assert plan.visited >= plan.pairs


@pytest.mark.parametrize(
    ("name", "dtype", "n", "causal"),
    turns(PATTERNS, [(dtype, n, causal) for n, causal in ((L, False), (77, True)) for dtype in DTYPES]),
)
def test_attention_over_a_pattern(name, dtype, n, causal, softmax_backend):
    pattern, may = PATTERNS[name][0], masks(name, n, causal)
    q, k, v = laws.arrays(n, (3, 2, n, 8), (2, L, 8), (2, L, 5), dtype=dtype)
    rng, a = np.random.default_rng(1), softmax_backend.kind.asarray
    keep, bias = rng.random((2, L)) < 0.8, rng.standard_normal(L).astype(dtype)
    bias[rng.random(L) < 0.1] = -np.inf
    for mask, more in ((None, None), (keep, bias)):
        out, lse = ka.attention.softmax_with_lse(
            a(q), a(k), a(v), causal=causal, pattern=pattern, backend=softmax_backend.name,
            key_mask=None if mask is None else a(mask), key_bias=None if more is None else a(more),
        )  # fmt: skip
        assert dtype_name(out) == dtype
        sees = may if mask is None else may & mask[:, None] & (more > -np.inf)
        scores = 8**-0.5 * np.einsum("...nd,...kd->...nk", *(x.astype("f8") for x in (q, k)))
        scores = np.where(sees, scores + (0 if more is None else more.astype("f8")), -np.inf)
        peak = np.max(scores, axis=-1, keepdims=True)
        weights = np.exp(scores - np.where(np.isfinite(peak), peak, 0))
        total = weights.sum(axis=-1, keepdims=True)
        wanted = weights @ v.astype("f8") / np.where(total == 0, 1, total)
        laws.close(out, wanted, {"float16": 2e-3, "float32": 1e-5, "float64": 1e-12}[dtype] * 4, "out")
        blind = total[..., 0] == 0
        np.testing.assert_array_equal(np.isneginf(to_numpy(lse)), blind)
        logs = np.log(np.where(blind, 1, total[..., 0])) + np.where(blind, 0, peak[..., 0])
        np.testing.assert_allclose(to_numpy(lse)[~blind], logs[~blind], atol=1e-12 if dtype == "float64" else 2e-5)


@pytest.mark.parametrize("name", ["local", "dilated", "longformer scattered", "union of orders", "image 2-D"])
@pytest.mark.parametrize("filling", [np.nan, np.inf])
def test_what_a_row_does_not_see_may_be_anything(name, filling, softmax_backend):
    pattern, sees = PATTERNS[name][0], masks(name, L, False)[0]
    q, k, v = laws.arrays(3, (L, 4), (L, 4), (L, 3))
    a = softmax_backend.kind.asarray

    def run(*given):
        with np.errstate(invalid="ignore"):
            return to_numpy(ka.softmax_attention(*map(a, given), pattern=pattern, backend=softmax_backend.name))

    clean, at = run(q, k, v), 60
    for which in (1, 2):
        spoilt = [q, k, v]
        spoilt[which] = spoilt[which].copy()
        spoilt[which][at, 1] = filling
        out = run(*spoilt)
        np.testing.assert_allclose(out[~sees[:, at]], clean[~sees[:, at]], rtol=1e-6, atol=1e-6)
        if which == 2:
            np.testing.assert_allclose(out[:, [0, 2]], clean[:, [0, 2]], rtol=1e-6, atol=1e-6)
            assert not np.isfinite(out[sees[:, at], 1]).any()


def test_scores_beyond_the_floats_are_merged():
    """Compiled attention keeps such rows among the values, and a part with the largest score wins."""
    pytest.importorskip("numba")
    q, k, v = laws.arrays(4, (L, 4), (L, 4), (L, 3))
    q = (q * 1e30).astype("f4")
    k = (k * 1e-20).astype("f4")
    k[:, 0] *= 1e25
    pattern = PATTERNS["strided"][0]
    out = ka.softmax_attention(q, k, v, pattern=pattern, scale=1.0, backend="cpu")
    scores = np.where(pattern.plan(L).mask(), q.astype("f8") @ k.astype("f8").T, -np.inf)
    np.testing.assert_allclose(out[:13], v[scores.argmax(axis=1)][:13], rtol=1e-6)
    assert np.isfinite(out).all()


@given(
    st.lists(
        st.one_of(
            st.builds(P.local, st.integers(0, 90), st.integers(0, 90), dilation=st.integers(1, 9)),
            st.builds(P.strided, st.integers(0, 40), st.integers(1, 40)),
            st.builds(lambda b, c: P.fixed(b, min(b, c)), st.integers(1, 90), st.integers(1, 9)),
            st.builds(P.image_1d, st.integers(1, 90), st.integers(0, 90)),
            st.builds(lambda t: P.longformer(3, [each % 20 for each in t]), st.lists(st.integers(0, 19), max_size=4)),
            st.builds(P.bigbird, st.integers(5, 30), st.integers(0, 3), rng=st.integers(0, 9)),
            st.builds(P.sinks, st.integers(0, 9)),
            st.builds(P.prefix, st.integers(0, 90)),
        ),
        min_size=1,
        max_size=3,
    ),
    st.lists(st.booleans(), min_size=2, max_size=2),
    st.integers(20, 140),
    st.integers(0, 30),
    st.booleans(),
)
@settings(max_examples=30)
def test_every_pair_is_visited_once(patterns, both, n, more, causal):
    """Parts are disjoint, whatever patterns are put together."""
    length = n + more
    whole, wanted = patterns[0], patterns[0].plan(n, length).mask()
    for other, either in zip(patterns[1:], both, strict=False):
        mask = other.plan(n, length).mask()
        whole, wanted = (whole | other, wanted | mask) if either else (whole & other, wanted & mask)
    if causal:
        wanted = wanted & np.tri(n, length, more, dtype=bool)
    plan = whole.plan(n, length, causal=causal)
    np.testing.assert_array_equal(counted(plan, 0), wanted)
    assert plan.pairs == wanted.sum()


def test_a_plan_stands_for_its_pattern(softmax_backend):
    q, k, v = map(softmax_backend.kind.asarray, laws.arrays(5, (40, 4), (90, 4), (90, 3), dtype="float64"))
    for causal in (False, True):
        out, same = (
            to_numpy(ka.softmax_attention(q, k, v, causal=causal, pattern=each, backend=softmax_backend.name))
            for each in (P.local(7), P.local(7).plan(40, 90))
        )
        np.testing.assert_allclose(out, same, rtol=1e-12, atol=1e-14)


def test_key_bias_without_a_pattern(softmax_backend):
    q, k, v = laws.arrays(6, (2, 70, 4), (2, 90, 4), (2, 90, 3), dtype="float64")
    counts = np.random.default_rng(0).integers(0, 4, 90)
    with np.errstate(divide="ignore"):
        bias = np.log(counts.astype("f8"))
    many = np.repeat(np.arange(90), counts)
    a, name = softmax_backend.kind.asarray, softmax_backend.name
    out = ka.softmax_attention(a(q), a(k), a(v), key_bias=a(bias), backend=name)
    wanted = ka.softmax_attention(a(q), a(k[:, many]), a(v[:, many]), backend=name)
    np.testing.assert_allclose(to_numpy(out), to_numpy(wanted), rtol=1e-11, atol=1e-12)
    slope = 0.1 * np.arange(90.0)  # ALiBi: a bias by distance is one by position, as far as a row can tell
    out = ka.softmax_attention(a(q), a(k), a(v), causal=True, key_bias=a(slope), backend=name)
    i, j = np.arange(20, 90)[:, None], np.arange(90)
    scores = np.where(j <= i, q @ np.swapaxes(k, -1, -2) / 2 - 0.1 * (i - j), -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    wanted = weights @ v / weights.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(to_numpy(out), wanted, rtol=1e-11, atol=1e-12)


def test_torch_differentiates_attention_over_a_pattern():
    """Also with a bias: neither has a compiled backward yet, and the reference is left to autograd."""
    torch = pytest.importorskip("torch")
    given = [torch.tensor(x, requires_grad=True) for x in laws.arrays(9, (20, 4), (20, 4), (20, 3), dtype="float64")]
    bias = torch.zeros(20, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor(P.local(3).plan(20).mask())
    for pattern, sees in ((P.local(3), mask), (None, torch.ones_like(mask))):
        out = ka.softmax_attention(*given, key_bias=bias, pattern=pattern)
        found = torch.autograd.grad(out.square().sum(), (*given, bias))
        q, k, v = given
        scores = torch.where(sees, q @ k.mT / 2 + bias, -torch.inf)
        wanted = torch.autograd.grad((torch.softmax(scores, -1) @ v).square().sum(), (*given, bias))
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: P.local(-1), "left must be an integer from 0"),
        (lambda: P.local(2, 1.5), "right must be"),
        (lambda: P.local(2, dilation=0), "dilation must be an integer from 1"),
        (lambda: P.strided(3, 0), "stride"),
        (lambda: P.fixed(4, 5), "columns must be at most block, 4"),
        (lambda: P.block_permutation(4, [0, 0, 1]), "permutations must be"),
        (lambda: P.block_permutation(4, [0, 1]).plan(20), "permutations of 2 blocks of 4 are for l from 5 to 8"),
        (lambda: P.longformer(4, [-1]), "each of tokens"),
        (lambda: P.longformer(4, 3), "tokens must be a sequence"),
        (lambda: P.longformer(4, [30]).plan(20), "tokens must be below l = 20; got 30"),
        (lambda: P.bigbird(0, 3, rng=0), "block"),
        (lambda: P.image_1d(4, -1), "memory"),
        (lambda: P.image_2d((4, 4), (2, 2), 1).plan(15), r"of shape \(4, 4\) is for l = 16; got l = 15"),
        (lambda: P.image_2d((4, 4), (2, 2), (1, 1)), "flange must be 3 integers"),
        (lambda: P.image_2d((4, 4), (2, 2), np.array(1)), "flange must be 3 integers"),
        (lambda: P.image_2d((4, 4), (2, 2), 1, order="columns"), "order must be one of raster, tiles"),
        (lambda: P.axial((4, 4), 2), "axis must be one of the 2 axes"),
        (lambda: P.neighborhood((4, 4), 5), r"size must be at most shape, \(4, 4\); got 5"),
        (lambda: P.sinks(True), "count"),
        (lambda: P.documents([0.5]), "ids must be integers"),
        (lambda: P.documents([1, 2]).plan(3), "documents is for l = 2"),
        (lambda: P.from_mask(np.eye(3)), r"mask must be bool \(n, l\)"),
        (lambda: P.from_mask(np.float32(1)), "mask must be bool"),
        (lambda: P.from_mask([True, False]), r"mask must be bool"),
        (lambda: P.from_mask(np.zeros((0, 4), bool)), "mask must be bool"),
        (lambda: P.from_mask(np.array([["a"]])), r"got an array <U1\(1, 1\)"),
        (lambda: P.from_intervals(np.ma.zeros(1, int), [1]), r"of one shape .*; got a masked array int64"),
        (lambda: P.from_mask(np.eye(4, dtype=bool)).plan(4, 5), "at most 4 queries of 4 tokens; got 4 of 5"),
        (lambda: P.from_intervals([0.0], [1]), "low and high must be integers of one shape"),
        (lambda: P.from_intervals([0, 1], [1]), "of one shape"),
        (lambda: P.from_intervals([0, 1], [1, 2]).plan(3), "at most 2 queries; got 3"),
        (lambda: P.from_mask(np.ones((2, 1, 4, 4), bool)), "mask must have one leading axis, of heads"),
        (lambda: P.from_intervals(*np.ones((2, 3, 2, 4), int)), "low and high must have one leading axis"),
        (lambda: P.documents(np.ones((2, 1, 4), int)), "ids must have one leading axis"),
        (lambda: P.lsh(np.ones((2, 1, 4, 3)), rotations=ROTATIONS, chunk=2), "x must have one leading axis"),
        (lambda: P.per_head([]), "patterns must be a list"),
        (lambda: (P.bigbird(4, 0, rng=0, heads=2) | P.bigbird(4, 0, rng=0, heads=3)).plan(20), "as many heads"),
        (lambda: P.per_head([P.bigbird(4, 0, rng=0, heads=2)]).plan(20), "must be one for all heads"),
        (lambda: P.local(2).plan(5, 4), "the last n of l tokens; got n = 5, l = 4"),
        (lambda: P.local(2).plan(5, 9).reach(2), "as many queries as keys"),
    ],
)
def test_bad_patterns_are_refused(call, match):
    with pytest.raises(ParameterError, match=match):
        call()


def test_bad_calls_are_refused():
    q, k, v = laws.arrays(7, (2, 9, 4), (2, 9, 4), (2, 9, 3))
    with pytest.raises(DTypeError, match="pattern must be a Pattern"):
        ka.softmax_attention(q, k, v, pattern="local")
    with pytest.raises(DTypeError, match="pattern must be a Pattern"):
        ka.softmax_attention(q, k, v, pattern=CAUSAL)
    with pytest.raises(ShapeError, match="the plan is for n = 8, l = 9; got n = 9, l = 9"):
        ka.softmax_attention(q, k, v, pattern=P.local(2).plan(8, 9))
    with pytest.raises(ShapeError, match="of 3 heads"):
        ka.softmax_attention(q, k, v, pattern=P.bigbird(2, 0, rng=0, heads=3))
    with pytest.raises(DTypeError, match="key_bias must have dtype float32"):
        ka.softmax_attention(q, k, v, key_bias=np.zeros(9))
    with pytest.raises(ShapeError, match="key_bias"):
        ka.softmax_attention(q, k, v, key_bias=np.zeros(8, "f4"))
    with pytest.raises(DTypeError, match="other side"):
        P.local(1) | ALL
    with pytest.raises(ParameterError, match="the cotangent must be a pair, of the outputs and of the log normalisers"):
        ka.vjp(ka.attention.softmax_with_lse, q, k, v, pattern=P.local(1))[1](v)
