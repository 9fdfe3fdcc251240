"""Compiled pullbacks of exact attention against those of array operations in float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernattn.ops.block_softmax import OP as FORWARD
from kernattn.ops.block_softmax_vjp import OP
from seam import ALL, CAUSAL
from xp import numpy_dtype

pytest.importorskip("numba")

EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
LEADS = [((), ()), ((2,), (2,)), ((3, 2), (3, 1)), ((2,), ()), ((), (2,))]


def drawn(q_lead, k_lead, n, length, d, e, seed=0):
    rng = np.random.default_rng(seed)
    shapes = (*q_lead, n, d), (*k_lead, length, d), (*k_lead, length, e)
    return [rng.standard_normal(shape) for shape in shapes]


def cotangent(q, k, v):
    lead = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    return np.random.default_rng(9).standard_normal((*lead, q.shape[-2], v.shape[-1])).astype(v.dtype)


def pulled(q, k, v, g, scale, plan, mask=None, backend="cpu", wide=False, bias=None, h=None):
    """The cotangents behind the compiled forward op, by a backend, of numbers made float64 if `wide`."""
    out, lse = FORWARD.implementation(q, "cpu")(q, k, v, scale, plan, mask, bias)
    if wide:
        q, k, v, bias, out, lse, g, h = (x if x is None else x.astype("f8") for x in (q, k, v, bias, out, lse, g, h))
    return OP.implementation(q, backend)(q, k, v, scale, plan, mask, bias, None, out, lse, g, h)[:5]


def agree(found, wanted, q, tolerance):
    """Compare each part to the size of its largest number; what is learnt of the scale to that of its terms."""
    terms = 10 * (1 + np.sum(np.abs(wanted[0] * q.astype("f8"))))
    for x, y, size in zip(found[:4], wanted[:4], (1.0, 1.0, 1.0, terms), strict=True):
        assert x.shape == y.shape
        assert np.isfinite(x.astype("f8")).all()
        assert np.abs(x.astype("f8") - y).max() <= tolerance * max(np.abs(y).max(), size)


@settings(max_examples=25)
@given(
    leads=st.sampled_from(LEADS),
    n=st.integers(1, 150),
    length=st.integers(1, 150),
    d=st.integers(1, 20),
    e=st.integers(1, 20),
    dtype=st.sampled_from(list(EPS)),
    plan=st.sampled_from([ALL, CAUSAL]),
    seen=st.sampled_from([None, 0.0, 0.3, 0.9]),
    scale=st.sampled_from([0.3, -1.0, 0.0]),
)
def test_every_shape_dtype_and_mask(leads, n, length, d, e, dtype, plan, seen, scale):
    if dtype == "bfloat16":
        pytest.importorskip("ml_dtypes")
    q, k, v = (x.astype(numpy_dtype(dtype)) for x in drawn(*leads, n, length, d, e))
    mask = None if seen is None else np.random.default_rng(2).random((*leads[1], length)) < seen
    given = q, k, v, cotangent(q, k, v), scale, plan, mask
    found = pulled(*given)
    assert [x.dtype for x in found[:4]] == [q.dtype] * 3 + [np.dtype("f8" if dtype == "float64" else "f4")]
    agree(
        found,
        pulled(*given, backend="reference", wide=True),
        q,
        40 * max(EPS["float64" if dtype == "float64" else "float32"], EPS[dtype] / 20),
    )


@pytest.mark.parametrize("plan", [ALL, CAUSAL], ids=lambda plan: plan.kind)
@pytest.mark.parametrize(("dtype", "huge"), [("float32", 1e20), pytest.param("float64", 1e160, marks=pytest.mark.slow)])
def test_scores_beyond_the_floats(dtype, huge, plan):
    """Rows whose scores overflow, and rows whose normalisers have no digits left, beside ordinary ones."""
    q, k, v = (x.astype(dtype) for x in drawn((2,), (2,), 150, 150, 8, 8))
    q[0, ::7] *= huge
    k[1, ::5] *= huge
    q[1, 3] *= huge
    q[1, 40:60], k[1, 1] = 0, 1e-3
    mask = np.random.default_rng(2).random((2, 150)) < 0.7
    given = q, k, v, cotangent(q, k, v), 0.3, plan, mask
    agree(pulled(*given), pulled(*given, backend="reference", wide=True), q, 1e3 * EPS[dtype])


def test_a_scale_that_is_no_float32():
    q, k, v = (x.astype("f4") for x in drawn((), (), 9, 9, 4, 4))
    for factor, scale in ((1e30, 1e-60), (1e-30, 1e60)):
        given = q * np.float32(factor), k * np.float32(factor), v, cotangent(q, k, v), scale, ALL
        found, wanted = pulled(*given), pulled(*given, backend="reference", wide=True)
        for x, y in zip(found[1:3], wanted[1:3], strict=True):
            np.testing.assert_allclose(x, y, rtol=0, atol=1e-5 * np.abs(y).max())


@pytest.mark.parametrize("backend", OP.backends[:2])
def test_what_is_not_seen_may_hold_anything(backend):
    q, k, v = drawn((2,), (2,), 150, 150, 8, 8)
    g, mask = cotangent(q, k, v), np.random.default_rng(2).random((2, 150)) < 0.7
    g[:, 30] = 0
    clean = pulled(q, k, v, g, 0.3, CAUSAL, mask, backend)
    assert all((x[~mask] == 0).all() for x in clean[1:3])
    assert (clean[0][:, 30] == 0).all()
    q, k, v = q.copy(), k.copy(), v.copy()
    q[:, 30], k[~mask], v[~mask] = np.nan, np.inf, np.nan
    for x, y in zip(pulled(q, k, v, g, 0.3, CAUSAL, mask, backend)[:4], clean[:4], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-12)
    k[:, 100:], v[:, 90:] = np.nan, -np.inf  # the future
    early = pulled(q, k, v, g, 0.3, CAUSAL, mask, backend)
    np.testing.assert_allclose(early[0][:, :90], clean[0][:, :90], rtol=1e-10, atol=1e-12)
    q, k, v = drawn((2,), (2,), 150, 150, 8, 8)
    q[:, 30], q[:, 70], g[:, 75] = 0, np.nan, np.nan  # keys after it are not seen by such a query
    for x, y in zip(pulled(q, k, v, g, 0.3, CAUSAL, mask, backend)[1:3], clean[1:3], strict=True):
        np.testing.assert_allclose(x[:, 76:], y[:, 76:], rtol=1e-10, atol=1e-12)
        assert np.isnan(x[:, :70][mask[:, :70]]).all()


def test_threads_change_nothing(on_threads):
    q, k, v = drawn((3, 2), (3, 1), 333, 290, 8, 8)
    q[0, 0, 5] *= 1e13
    found = []
    for threads in (1, 3):
        on_threads(threads)
        found.append(pulled(q, k, v, cotangent(q, k, v), 0.3, CAUSAL))
    for x, y in zip(found[0][:4], found[1][:4], strict=True):
        np.testing.assert_array_equal(x, y)


def test_strided_and_read_only():
    given = [*drawn((2,), (2,), 70, 70, 8, 8)]
    given.append(cotangent(*given))
    wanted = pulled(*given, 0.3, ALL)
    laid = [np.asfortranarray(x) for x in given]
    for x in laid:
        x.flags.writeable = False
    for x, y in zip(pulled(*laid, 0.3, ALL)[:4], wanted[:4], strict=True):
        np.testing.assert_array_equal(x, y)
        assert x.flags.writeable
