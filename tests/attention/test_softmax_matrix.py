"""Exact attention on the matrix unit, emulated where there is none: errors, masks and plans, rows by themselves."""

import ml_dtypes
import numpy as np
import pytest

import kernattn as ka
import oracles
from kernattn import patterns

pytestmark = pytest.mark.usefixtures("matrix_unit")

DTYPES = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}


def answers(q, k, v, **options):
    return ka.attention.softmax_with_lse(q, k, v, backend="cpu", **options)


def rows_of(rng, dtype, n, length, d, e, lead=((2,), (2,))):
    shapes = (*lead[0], n, d), (*lead[1], length, d), (*lead[1], length, e)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def same(found, wanted):
    np.testing.assert_array_equal(found.astype("f8"), wanted.astype("f8"))


def rms(x):
    return np.sqrt(np.mean(np.square(x.astype("f8"))))


@pytest.mark.parametrize("norm", [1, 4, 8, 16])
@pytest.mark.parametrize("dtype", DTYPES)
def test_errors_are_those_of_rounding_the_exact_answer(dtype, norm):
    rng = np.random.default_rng(norm)
    q, k, v = rows_of(rng, "f8", 130, 130, 64, 64)
    q, k = (norm * x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
    given = [x.astype(DTYPES[dtype]) for x in (q, k, v)]
    wanted, wanted_lse = oracles.softmax_attention(*(x.astype("f8") for x in given), scale=1.0)
    rounding = rms(wanted.astype(DTYPES[dtype]).astype("f8") - wanted)
    two, lse = answers(*given, scale=1.0)
    with ka.precision("bfloat16"):
        one, same_lse = answers(*given, scale=1.0)
    assert rms(two - wanted) <= 1.05 * rounding
    assert rms(one - wanted) <= 1.5 * rounding
    assert (np.abs(one - wanted).max(-1) <= 5 * 2.0**-9 * np.abs(wanted).max(-1)).all()
    assert (one == two).all() == (dtype == "float16")  # float16 stays what it is
    np.testing.assert_allclose(lse, wanted_lse, atol=2e-6 * norm**2, rtol=1e-6)
    same(lse, same_lse)


def test_float32_arrays_are_taken_in_two_parts_where_it_is_asked_for(by_floats):
    rng = np.random.default_rng(0)
    rows = rows_of(rng, "f4", 70, 90, 20, 30)
    wanted, floats = oracles.softmax_attention(*(x.astype("f8") for x in rows))[0], by_floats(answers, *rows)
    same(answers(*rows)[0], floats[0])
    with ka.precision("tf32"):
        out, lse = answers(*rows)
    assert out.dtype == np.float32
    assert 1e-7 < rms(out - wanted) / rms(wanted) < 2e-5
    np.testing.assert_allclose(lse, floats[1], atol=1e-4)


PATTERNS = {
    "all": ({}, 70, 90),
    "causal": ({"causal": True}, 90, 100),
    "causal of fewer keys": ({"causal": True}, 100, 40),
    "window": ({"pattern": patterns.local(37)}, 150, 150),
    "dilated": ({"pattern": patterns.local(9, dilation=5), "causal": True}, 150, 150),
    "scattered documents": ({"pattern": patterns.documents(np.arange(100) % 3), "causal": True}, 100, 100),
    "longformer": ({"pattern": patterns.longformer(20, [0, 77])}, 150, 150),  # rows in two parts
    "bigbird": ({"pattern": patterns.bigbird(16, 3, rng=0)}, 160, 160),
    "strided": ({"pattern": patterns.strided(8, 8)}, 100, 100),
    "documents": ({"pattern": patterns.documents(np.repeat([0, 1, 2], [33, 1, 66]))}, 100, 100),
}


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_plan_mask_and_group(name, dtype, by_floats):
    options, n, length = PATTERNS[name]
    rng = np.random.default_rng(len(name))
    rows = rows_of(rng, DTYPES[dtype], n, length, 20, 33, ((2, 3), (2, 1)))
    mask = rng.random((2, 1, length)) < 0.7
    mask[1, 0, : length // 2] = False
    bias = rng.standard_normal((2, 1, length)).astype(DTYPES[dtype])
    bias[:, :, 3] = -np.inf
    for more in ({}, {"key_mask": mask}, {"key_mask": mask, "key_bias": bias, "scale": -0.3}):
        out, lse = answers(*rows, **options, **more)
        wanted, wanted_lse = by_floats(answers, *rows, **options, **more)
        assert out.dtype == DTYPES[dtype]
        eps = float(ml_dtypes.finfo(DTYPES[dtype]).eps)
        np.testing.assert_allclose(out.astype("f8"), wanted.astype("f8"), rtol=eps, atol=1e-5)  # a rounding apart
        np.testing.assert_allclose(lse, wanted_lse, rtol=1e-6, atol=3e-6)


FAR = {"NaN": np.nan, "infinite": -np.inf, "huge": 1e35, "denormal": 1e-39}


def is_far(x, low, high):
    size = np.abs(x.astype("f4"))
    return (~(size <= high) | ((size < low) & (size > 0))).any(axis=-1)


@pytest.mark.parametrize("name", FAR)
def test_floats_answer_the_rows_that_tiles_cannot_hold_and_no_other_row_moves(name, by_floats):
    rng = np.random.default_rng(0)
    q, k, v = rows_of(rng, ml_dtypes.bfloat16, 100, 100, 8, 8)
    mask = rng.random((2, 100)) < 0.8
    mask[0, 40] = mask[1, 70] = True
    q[0, 5, 2] = k[0, 40, 3] = v[1, 70, 1] = FAR[name]
    hidden = np.argmin(mask, axis=-1)
    k[[0, 1], hidden, 3] = v[[0, 1], hidden, 0] = FAR[name]  # may be anything
    far_q, far_k, far_v = is_far(q, 0, 2.0**40), is_far(k, 0, 2.0**40), is_far(v, 2.0**-100, 2.0**100)
    told = far_q | (np.tri(100, dtype=bool) & (mask & (far_k | far_v))[:, None]).any(axis=-1)
    assert 0 < told.sum() < told.size
    clean = [np.where(far[..., None], 0, x).astype(x.dtype) for x, far in ((q, far_q), (k, far_k), (v, far_v))]
    kept, kept_lse = answers(*clean, causal=True, key_mask=mask)
    wanted, wanted_lse = by_floats(answers, q, k, v, causal=True, key_mask=mask)
    out, lse = answers(q, k, v, causal=True, key_mask=mask)
    same(out, np.where(told[..., None], wanted, kept))
    same(lse, np.where(told, wanted_lse, kept_lse))


def test_a_far_bias_is_one_of_floats(by_floats):
    rng = np.random.default_rng(0)
    rows, bias = rows_of(rng, ml_dtypes.bfloat16, 40, 70, 8, 8), np.zeros((2, 70), ml_dtypes.bfloat16)
    for given in (3e38, np.nan):
        bias[0, 50] = given
        out, wanted = (
            answers(*rows, causal=True, key_bias=bias)[0],
            by_floats(answers, *rows, causal=True, key_bias=bias)[0],
        )
        same(out[0, 20:], wanted[0, 20:])
        same(out[1], answers(*rows, causal=True)[0][1])


@pytest.mark.parametrize("future", [(30, 30, 1e3), (1e8, 1e-3, 1e-30), (np.nan, np.inf, np.nan)], ids=str)
def test_the_past_keeps_every_bit(future):
    rng = np.random.default_rng(0)
    rows = rows_of(rng, ml_dtypes.bfloat16, 130, 130, 8, 8)
    whole = answers(*rows, causal=True)
    for t in (31, 64, 100):
        changed = [x.copy() for x in rows]
        for x, factor in zip(changed, future, strict=True):
            x[:, t:] = (factor * x[:, t:][:, ::-1].astype("f4")).astype(x.dtype)
        for options, given in (({}, changed), ({}, [x[:, :t] for x in rows])):
            for found, kept in zip(answers(*given, causal=True, **options), whole, strict=True):
                same(found[:, :t], kept[:, :t])


def test_parts_of_the_keys_merge_to_the_whole():
    rng = np.random.default_rng(0)
    q, k, v = rows_of(rng, ml_dtypes.bfloat16, 50, 120, 16, 16)
    whole, lse = answers(q, k, v)
    (one, log), (other, log_too) = (answers(q, k[:, cut], v[:, cut]) for cut in (np.s_[:77], np.s_[77:]))
    np.testing.assert_allclose(np.logaddexp(log, log_too), lse, rtol=2e-6)
    merged = one * np.exp(log - lse)[..., None] + other * np.exp(log_too - lse)[..., None]
    np.testing.assert_allclose(merged, whole.astype("f8"), atol=2.0**-8)


def test_threads_and_layouts_change_nothing(on_threads):
    rng = np.random.default_rng(0)
    rows = rows_of(rng, ml_dtypes.bfloat16, 300, 300, 8, 8)
    alone = answers(*rows, causal=True)
    on_threads(3)
    laid = [np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1) for x in rows]
    for given in (rows, laid):
        for found, wanted in zip(answers(*given, causal=True), alone, strict=True):
            same(found, wanted)


def test_keys_that_are_hidden_weigh_nothing_beside_scores_at_the_ends():
    rng = np.random.default_rng(0)
    q, k, v = rows_of(rng, ml_dtypes.bfloat16, 70, 70, 8, 8)
    v[...], mask = 1, rng.random((2, 70)) < 0.5
    mask[:, 0] = True
    v[~mask] = 2.0**99
    for size in (1, 2.0**37):
        for sign in (1, -1):
            rows = (size * np.abs(q)).astype(q.dtype), (sign * size * np.abs(k)).astype(k.dtype)
            for scale in (1, 2.0**29):
                for options in ({}, {"causal": True}):
                    out, lse = answers(*rows, v, scale=scale, key_mask=mask, **options)
                    same(out, np.ones_like(v))
                    assert np.isfinite(lse).all()


def test_few_queries_and_scales_at_the_ends_are_answered_by_floats(by_floats):
    rng = np.random.default_rng(0)
    q, k, v = rows_of(rng, ml_dtypes.bfloat16, 16, 64, 8, 8)
    for rows, options in (((q[:, :15], k, v), {}), ((q, k, v), {"scale": 1e12}), ((q, k, v), {"scale": 1e-12})):
        for found, wanted in zip(answers(*rows, **options), by_floats(answers, *rows, **options), strict=True):
            same(found, wanted)
    assert (answers(q, k, v)[1] != by_floats(answers, q, k, v)[1]).any()
