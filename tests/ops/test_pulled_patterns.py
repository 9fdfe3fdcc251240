"""Pullbacks of exact attention over plans, with a bias of keys and cotangents of log normalisers."""

import gc
import weakref
from types import SimpleNamespace

import numpy as np
import pytest

import kernattn as ka
from kernattn._plans.parts import dense
from kernattn._plans.plan import cut_off
from kernattn._plans.transposed import dense_from_keys, from_keys
from kernattn.ops.block_softmax import OP as FORWARD
from kernattn.ops.block_softmax_vjp import OP
from oracles import softmax_gradients
from seam import ALL, CAUSAL
from visited import counted

N, DIM, WIDTH = 150, 8, 5
P = ka.patterns
PATTERNS = {
    "local": P.local(20, 3),
    "dilated": P.local(20, 0, dilation=3),
    "strided": P.strided(8, 8),
    "fixed": P.fixed(16, 2),
    "bigbird": P.bigbird(16, 2, rng=0),
    "longformer": P.longformer(10, [0, 77, 3]),
    "documents": P.documents(np.repeat([0, 2, 1], [70, 30, 50])),
    "image": P.image_2d((15, 10), (4, 5), 2),
    "tiles": P.image_2d((15, 10), (4, 5), 2, order="tiles"),
    "either": P.sinks(4) | P.local(16, 0),
    "both": P.local(16, 0) & P.documents(np.repeat([0, 1], 75)),
    "heads": P.per_head([P.strided(8, 8), P.local(5)]),
}


def problem(dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    q, g = (rng.standard_normal((2, N, width)).astype(dtype) for width in (DIM, WIDTH))
    k, v = (rng.standard_normal((2, N, width)).astype(dtype) for width in (DIM, WIDTH))
    return q, k, v, g, rng.standard_normal((2, N)) > -1, rng.standard_normal((2, N)).astype(dtype)


def pulled(q, k, v, g, scale, plan, mask, bias, h, backend):
    out, lse = FORWARD.implementation(q, backend)(q, k, v, scale, plan, mask, bias)
    return OP.implementation(q, backend)(q, k, v, scale, plan, mask, bias, None, out, lse, g, h)[:5]


def seen_by(plan):
    return np.stack([plan.mask(head % len(plan.heads)) for head in range(2)])


def close(found, wanted, tolerance):
    for x, y in zip(found, wanted, strict=True):
        assert x.shape == y.shape
        assert np.abs(x - y).max() <= tolerance * (1 + np.abs(y).max())


@pytest.mark.parametrize("backend", OP.backends[:2])
@pytest.mark.parametrize("name", PATTERNS)
def test_every_pattern(name, backend):
    """Against dense matrices, with the bias, and where what no row sees is not finite."""
    q, k, v, g, mask, bias = problem()
    h = np.random.default_rng(7).standard_normal((2, N))
    plan = PATTERNS[name].plan(N)
    seen = seen_by(plan) & mask[:, None]
    wanted = softmax_gradients(q, k, v, seen, 0.3, bias, g, h)
    unseen = ~seen.any(axis=1)
    k[unseen], v[unseen], bias[unseen] = np.nan, np.inf, np.nan
    q[~seen.any(axis=2)] = np.nan
    close(pulled(q, k, v, g, 0.3, plan, mask, bias, h, backend), wanted, 1e-10)


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float16", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["dilated", "longformer", "heads"])
def test_narrow_numbers(name, dtype):
    q, k, v, g, mask, bias = problem(dtype)
    plan = PATTERNS[name].plan(N, causal=True)
    found = pulled(q, k, v, g, 0.3, plan, mask, bias, None, "cpu")
    assert [x.dtype for x in found] == [q.dtype] * 3 + [np.dtype("f4"), q.dtype]
    wide = [x.astype("f8") for x in (q, k, v)]
    wanted = softmax_gradients(*wide, seen_by(plan) & mask[:, None], 0.3, bias.astype("f8"), g.astype("f8"), 0.0)
    close(found, wanted, 1e-4 if dtype == "float32" else 2e-2)


def test_what_a_row_does_not_see_leaves_no_trace():
    q, k, v, g, _, bias = problem()
    plan = P.local(10, 0).plan(N)
    clean = pulled(q, k, v, g, 0.3, plan, None, bias, None, "cpu")
    q, k, v = q.copy(), k.copy(), v.copy()
    k[:, 100], v[:, 100] = np.nan, np.inf
    found = pulled(q, k, v, g, 0.3, plan, None, bias, None, "cpu")
    for x, y, rows in zip(found[:3], clean[:3], (slice(100), slice(89), slice(89)), strict=True):
        np.testing.assert_allclose(x[:, rows], y[:, rows], rtol=1e-12)
    assert np.isnan(found[0][:, 100:111]).all()


def test_scores_beyond_the_floats():
    q, k, v, g, mask, bias = problem("float32")
    q[0, ::7] *= 1e20
    k[1, ::5] *= 1e20
    for plan in (P.strided(8, 8).plan(N), PATTERNS["heads"].plan(N)):
        found = pulled(q, k, v, g, 0.3, plan, mask, bias, None, "cpu")
        wide = [x.astype("f8") for x in (q, k, v)]
        wanted = softmax_gradients(*wide, seen_by(plan) & mask[:, None], 0.3, bias.astype("f8"), g.astype("f8"), 0.0)
        close([found[0], found[1], found[2], found[4]], [wanted[0], wanted[1], wanted[2], wanted[4]], 1e-4)


def test_groups_of_queries_and_heads_of_their_own():
    """Two heads of keys for three of queries each; the pattern differs between the heads of a group, or of the keys."""
    rng = np.random.default_rng(0)
    q, g = rng.standard_normal((2, 3, N, DIM)), rng.standard_normal((2, 3, N, WIDTH))
    k, v = rng.standard_normal((2, 1, N, DIM)), rng.standard_normal((2, 1, N, WIDTH))
    patterns = P.local(9), P.strided(8, 8), P.fixed(16, 2)
    plan = P.per_head(patterns).plan(N)
    found = pulled(q, k, v, g, 0.3, plan, None, None, None, "cpu")
    total = np.zeros_like(k), np.zeros_like(v)
    for group in range(2):
        for head, pattern in enumerate(patterns):
            own = pattern.plan(N)
            dq, dk, dv, *_ = softmax_gradients(
                q[group, head], k[group, 0], v[group, 0], own.mask(), 0.3, 0.0, g[group, head], 0.0
            )
            np.testing.assert_allclose(found[0][group, head], dq, atol=1e-11)
            total[0][group, 0] += dk
            total[1][group, 0] += dv
    close(found[1:3], total, 1e-11)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", PATTERNS)
def test_transposed_plans_visit_every_pair_once(name, causal):
    plan = PATTERNS[name].plan(N, causal=causal)
    back = from_keys(plan)
    assert back.pairs == plan.pairs
    assert len(back.heads) == len(plan.heads)
    for head in range(len(plan.heads)):
        np.testing.assert_array_equal(back.mask(head).T, plan.mask(head))


@pytest.mark.parametrize("left", [63, 127])
def test_visits_that_cross_tiles_of_keys(left):
    plan = P.local(left, 0).plan(N)
    assert from_keys(plan).pairs == plan.pairs


def test_what_is_made_of_a_plan_goes_with_it():
    plan = P.lsh(np.eye(N)[:, :DIM], rotations=np.ones((1, DIM, 2)), chunk=16).plan(N)
    assert from_keys(plan) is from_keys(plan)
    made = [weakref.ref(x) for x in (plan, from_keys(plan), cut_off(plan))]
    del plan
    gc.collect()
    assert [x() for x in made] == [None] * 3


@pytest.mark.parametrize("plan", [ALL, CAUSAL], ids=lambda plan: plan.kind)
@pytest.mark.parametrize(("n", "length"), [(1, 1), (1, 70), (150, 70), (70, 150), (64, 128), (3, 200), (200, 3)])
def test_dense_plans_from_their_keys(n, length, plan):
    causal = plan is CAUSAL
    whole, back = dense(n, length, causal), dense_from_keys(n, length, causal)
    assert whole.pairs == back.pairs
    seen = counted(SimpleNamespace(n=n, length=length, heads=((whole,),)), 0)
    turned = counted(SimpleNamespace(n=length, length=n, heads=((back,),)), 0)
    np.testing.assert_array_equal(turned.T, seen)
