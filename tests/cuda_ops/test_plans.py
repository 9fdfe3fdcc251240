"""Exact attention over plans on the emulation, against the float64 oracle and the pictures of the plans."""

import gc

import numpy as np
import pytest

import kernattn as ka
import oracles
from covering import turns
from cuda_ops.cases import OPERAND_EPS, array, dtype_of, to64
from cuda_ops.pullbacks import agree, wide
from kernattn._plans.parts import pack_words
from kernattn.attention.patterns import Part, Plan
from kernattn.errors import BackendUnavailable
from kernattn.ops._cuda import plans
from kernattn.ops.block_softmax.gpu import block_softmax
from kernattn.ops.block_softmax_vjp import reference
from kernattn.ops.block_softmax_vjp.gpu import block_softmax_vjp
from seam import CAUSAL

P, N, L = ka.patterns, 150, 180
SEES = np.random.default_rng(0).random((2, 64, 64)) < 0.5  # (words, key, query)
SEES[0, :, 3] = False


def part(queries, keys, tiles, visits):
    return Part(queries, keys, np.array(tiles), np.array(visits), pack_words(SEES))


ORDER = np.random.default_rng(1).permutation(L)
ROWS, LATE = ORDER[ORDER < N], ORDER[ORDER >= 110]
SOME = [[0, 10, 3, 3], [10, 64, 0, 2], [74, 9, 2, 3], [83, 7, 3, 3]]
TILES = [[0, 1, 4, 4], [1, 64, 0, 3], [65, 5, 4, 5], [70, 33, 3, 4], [103, 47, 4, 4]]
AT_ANY_START = Plan(  # tiles and visits at any start; rows in one part, in two and in none; a row that sees nothing
    "parts",
    N,
    L,
    (
        (
            part(ROWS[:90], LATE, SOME, [[1, 60, 1], [60, 66, -1], [5, 69, 0]]),
            part(None, None, TILES, [[3, 67, 0], [71, 90, 1], [90, 110, -1], [0, 106, -1], [5, 6, -1]]),
        ),
        (part(ROWS, ORDER, [[0, 64, 0, 1], [64, 64, 1, 2], [128, 22, 2, 3]], [[0, 130, -1], [99, 163, 0], [1, 9, 1]]),),
    ),
)
HASHED = np.random.default_rng(3).standard_normal((2, L, 5)), np.random.default_rng(4).standard_normal((2, 5, 4))
PLANS = {
    "at any start": AT_ANY_START,
    "local": P.local(20, 5),
    "fixed": P.fixed(16, 3),
    "strided": P.strided(13, 13),
    "longformer": P.longformer(10, [170, 5, 90], right=3),
    "union of orders": P.local(9) | P.local(60, dilation=4) | P.fixed(32, 1),
    "one a head": P.per_head([P.local(3), P.strided(5, 5)]) | P.sinks(1),
    "hashed": P.lsh(HASHED[0], rotations=HASHED[1], chunk=24),
}


def planned(name):
    pattern = PLANS[name]
    return pattern if isinstance(pattern, Plan) else pattern.plan(N, L)


def problem(cupy, dtype, d=5, e=7):
    rng = np.random.default_rng(5)
    q, k, v = (
        array(cupy, rng.normal(size=(*lead, rows, c)), dtype)
        for lead, rows, c in (((3, 2), N, d), ((2,), L, d), ((2,), L, e))
    )
    bias = rng.normal(size=L).astype(dtype_of(dtype))
    bias[rng.random(L) < 0.1] = -np.inf
    return q, k, v, rng.random((2, L)) < 0.8, bias


def seen(plan):
    """What heads see, (heads, N, L)."""
    if plan is CAUSAL:
        return np.tri(N, L, L - N, dtype=bool)[None]
    return np.stack([plan.mask(head) for head in range(len(plan.heads))])


def check(plan, given, found, dtype, keep=None, bias=None, scale=0.5):
    q, k, v = map(to64, given)
    may = seen(plan)
    if keep is not None:
        may = may & keep[:, None, :] & (bias > -np.inf)
        k = np.concatenate(
            [k, np.broadcast_to(np.where(bias > -np.inf, to64(bias) / scale, 0)[:, None], (2, L, 1))], axis=-1
        )
        q = np.concatenate([q, np.ones_like(q[..., :1])], axis=-1)
    wanted, lse = oracles.softmax_attention(q, k, v, scale=scale, may=may)
    eps = 4 * OPERAND_EPS[dtype] + (2.0**-20 if dtype != "float64" else 0)
    out, logs = map(to64, found)
    assert found[0].dtype == given[0].dtype
    np.testing.assert_allclose(out, wanted, rtol=eps, atol=eps * np.abs(v).max())
    np.testing.assert_allclose(logs, lse, rtol=eps, atol=eps)
    assert not out[np.isneginf(lse)].any()


KINDS = [("float32", True), ("bfloat16", True), ("float64", False), ("float16", False)]


@pytest.mark.parametrize(("name", "dtype", "biased"), turns(PLANS, KINDS))
def test_plans(cupy, name, dtype, biased):
    plan, (*given, keep, bias) = planned(name), problem(cupy, dtype)
    more = (cupy.asarray(keep), cupy.asarray(bias)) if biased else (None, None)
    check(plan, given, block_softmax(*given, 0.5, plan, *more), dtype, *((keep, bias) if biased else ()))


@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("filling", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["at any start", "union of orders"])
def test_what_a_row_does_not_see_may_be_anything(cupy, name, filling, dtype):
    plan, (q, k, v, *_) = planned(name), problem(cupy, dtype)
    clean, logs = map(to64, block_softmax(q, k, v, 0.5, plan, None))
    for at in (20, 106, 140):
        blind = np.broadcast_to(~seen(plan)[..., at], clean.shape[1:3])
        for spoilt in ("k", "v"):
            given = {"k": k.copy(), "v": v.copy()}
            given[spoilt][:, at, 1] = filling
            out, lse = map(to64, block_softmax(q, *given.values(), 0.5, plan, None))
            np.testing.assert_array_equal(lse[:, blind], logs[:, blind])
            np.testing.assert_allclose(out[:, blind], clean[:, blind], rtol=1e-5, atol=1e-5)
            if spoilt == "v":
                np.testing.assert_array_equal(out[:, ~blind, 1], filling)
                np.testing.assert_allclose(out[:, ~blind, 2:], clean[:, ~blind, 2:], rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(("scale", "values"), [(1e20, 1.0), (1.0, 1e38), (1e30, 1e38)])
@pytest.mark.parametrize("name", ["at any start", "fixed"])
def test_rows_beyond_the_floats(cupy, name, scale, values):
    """They are computed once more, and joined once."""
    plan, (q, k, v, *_) = planned(name), problem(cupy, "float32")
    big, size = cupy.asarray(np.float32(scale)), cupy.asarray(np.float32(values))
    q[:, :, ::7] = q[:, :, ::7] * big
    k, v = k * big, v / abs(v).max() * size
    out, lse = map(to64, block_softmax(q, k, v, 0.5, plan, None))
    wanted, logs = oracles.softmax_attention(*map(to64, (q, k, v)), scale=0.5, may=seen(plan))
    np.testing.assert_allclose(out / values, wanted / values, atol=1e-5)
    np.testing.assert_array_equal(np.isneginf(lse), np.isneginf(logs))
    assert not np.isnan(lse).any()


def pulled(cupy, name, dtype, biased=True):
    """The arguments of `block_softmax_vjp`, some rows of which ask nothing."""
    plan, (q, k, v, keep, bias) = planned(name), problem(cupy, dtype)
    more = (cupy.asarray(keep), cupy.asarray(bias)) if biased else (None, None)
    out, lse = block_softmax(q, k, v, 0.5, plan, *more)
    rng = np.random.default_rng(6)
    g, of_lse = rng.normal(size=out.shape), rng.normal(size=lse.shape) * (np.arange(N) % 9 > 0)
    g[..., ::9, :] = 0
    return q, k, v, 0.5, plan, *more, None, out, lse, array(cupy, g, dtype), cupy.asarray(of_lse.astype(lse.dtype))


BACK = [(*kind, name) for name in PLANS for kind in KINDS]
USUAL = [("float32", True, "at any start"), ("float32", True, "union of orders"), ("float32", True, "one a head")]


@pytest.mark.parametrize(
    ("dtype", "biased", "name"), [pytest.param(*x, marks=[] if x in USUAL else pytest.mark.slow) for x in BACK]
)
def test_cotangents(cupy, dtype, biased, name):
    given = pulled(cupy, name, dtype, biased)
    for more in (given, (*given[:-1], None)):
        found = block_softmax_vjp(*more)
        wanted = reference.block_softmax_vjp(*map(wide, more))
        assert [x.dtype for x in found[:3]] == [x.dtype for x in given[:3]]
        agree(found[:3], wanted[:3], dtype)
        if biased:
            agree(found[4:5], wanted[4:5], dtype)
        size = 1.0 + float(np.sum(np.abs(wide(given[0]) * wide(found[0]))))  # of the terms of the scale's
        assert abs(float(found[3]) - float(wanted[3])) <= (1e-5 if dtype in ("float32", "float64") else 0.05) * size


def test_cotangents_are_blind_to_what_is_not_seen(cupy):
    """A key that is NaN spoils the rows that see it, which then ask nothing of the others."""
    q, k, v, scale, plan, keep, bias, _, _, _, g, _ = pulled(cupy, "union of orders", "float32")
    may, at = seen(plan)[0], 40
    asks = ~may[:, at]
    g = g * cupy.asarray(asks[:, None].astype(np.float32))
    given, rough = (q, k, v), (q, k.copy(), v.copy())
    rough[1][:, at] = np.nan
    rough[2][:, at] = np.nan
    clean, found = (
        block_softmax_vjp(*x, scale, plan, keep, bias, None, *block_softmax(*x, scale, plan, keep, bias), g, None)
        for x in (given, rough)
    )
    for x, y in zip(found[:5], clean[:5], strict=True):
        np.testing.assert_array_equal(to64(x), to64(y))


def test_a_key_that_a_part_lists_twice_is_told_twice(cupy):
    tiles, visits = np.array([[0, 10, 0, 1], [10, 10, 1, 2]]), np.array([[0, 2, -1], [2, 4, -1]])
    plan = Plan("parts", 20, 30, ((Part(None, np.array([3, 5, 3, 9]), tiles, visits, pack_words(SEES[:0])),),))
    q, k, v, g = (
        array(cupy, np.random.default_rng(i).normal(size=(n, 5)), "float32") for i, n in enumerate((20, 30, 30, 20))
    )
    given = q, k, v, 0.5, plan, None, None, None, *block_softmax(q, k, v, 0.5, plan, None), g, None
    agree(block_softmax_vjp(*given)[:3], reference.block_softmax_vjp(*map(wide, given))[:3], "float32")


def test_a_bias_alone(cupy):
    q, k, v, keep, bias = problem(cupy, "float32")
    given = [cupy.asarray(x) for x in (keep, bias)]
    found = block_softmax(q, k, v, 0.5, CAUSAL, *given)
    check(CAUSAL, (q, k, v), found, "float32", keep, bias)
    more = q, k, v, 0.5, CAUSAL, *given, None, *found, found[0], None
    pulled, wanted = block_softmax_vjp(*more), reference.block_softmax_vjp(*map(wide, more))
    agree((*pulled[:3], pulled[4]), (*wanted[:3], wanted[4]), "float32")


@pytest.mark.parametrize("name", ["union of orders", "hashed"])
def test_tables_are_uploaded_once_and_go_with_the_plan(cupy, name):
    pattern, (q, k, v, *_) = PLANS[name], problem(cupy, "float32")
    plan = Plan("parts", N, L, pattern.plan(N, L).heads)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for x in (q, k, v):
            x.sum()
        stream.begin_capture()
        with pytest.raises(BackendUnavailable, match="before the capture"):
            block_softmax(q, k, v, 0.5, plan, None)
        stream.end_capture()
        first = block_softmax(q, k, v, 0.5, plan, None)[0]
        kept = plans.levels(plan, 64)
        stream.begin_capture()
        again = block_softmax(q, k, v, 0.5, plan, None)[0]
        stream.end_capture().launch(stream)
        stream.synchronize()
        np.testing.assert_array_equal(to64(again), to64(first))
    assert plans.levels(plan, 64) is kept
    assert len(plans._levels) == 1
    del plan
    gc.collect()
    assert len(plans._levels) == 0


def test_attention_by_its_public_names(cupy):
    """The GPU is chosen for its arrays: with patterns, biases, hashed tokens and clusters."""
    rng = np.random.default_rng(0)
    host = [rng.normal(size=(2, 70, c)).astype(np.float32) for c in (5, 5, 7)]
    q, k, v = map(cupy.asarray, host)
    bias, rotations, centroids = (
        rng.normal(size=70).astype(np.float32),
        rng.normal(size=(2, 5, 4)),
        rng.normal(size=(2, 3, 5)),
    )
    centroids = centroids.astype(np.float32)
    calls = (
        lambda a, *qkv, **to: ka.softmax_attention(*qkv, pattern=P.fixed(16, 3), key_bias=a(bias), **to),
        lambda a, *qkv, **to: ka.softmax_attention(*qkv, causal=True, key_bias=a(bias), **to),
        lambda a, *qkv, **to: ka.softmax_attention(*qkv, pattern=P.local(9), causal=True, **to),
        lambda a, q, k, v, **to: ka.attention.lsh_attention(q, v, rotations=rotations, chunk=8, **to),
        lambda a, *qkv, **to: ka.attention.routing_attention(*qkv, centroids, window=8, assign="nearest", **to),
    )
    for call in calls:
        wanted = call(np.asarray, *host, backend="reference")
        np.testing.assert_allclose(to64(call(cupy.asarray, q, k, v)), wanted, rtol=1e-4, atol=1e-4)
