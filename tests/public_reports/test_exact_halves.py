"""Exact attention of 16 bits: rows beside bad ones, masks, strides, and gradients."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import kernattn as ka
from kernattn import patterns
from public_reports import dense

ml_dtypes = pytest.importorskip("ml_dtypes")

UNITS = {np.dtype(np.float16): 2.0**-11, np.dtype(ml_dtypes.bfloat16): 2.0**-8}  # half the gap between 1 and the next
RNG = np.random.default_rng(0)
ELU = ka.features.elu1()


def normal(*shape):
    return RNG.standard_normal(shape)


def wide(x):
    return np.asarray(x, np.float64)


def check(found, exact, unit):
    assert np.max(np.abs(wide(found) - exact)) <= 1.1 * unit * np.max(np.abs(exact))


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("dtype", UNITS, ids=str)
@pytest.mark.parametrize("d", [33, 40])
def test_a_bad_query_spoils_no_other_row(d, dtype, precision):
    """uxlfoundation/oneDNN#5717: where d was no multiple of 32, NaN of one row came into rows of the same tile."""
    q, k, v = (normal(2, 70, d).astype(dtype) for _ in range(3))
    bad = q.copy()
    bad[0, 10], bad[1, 0] = np.nan, np.inf
    clean = np.isfinite(wide(bad)).all(axis=-1)
    phi = ka.random_features(ka.kernels.Softmax(), d, 32, rng=0)
    with ka.precision(precision):
        for rows in (
            lambda q: ka.softmax_attention(q, k, v),
            lambda q: ka.linear_attention(q, k, v, ELU),
            lambda q: ka.causal_linear_attention(q, k, v, ELU)[0],
            phi,
        ):
            assert_array_equal(wide(rows(bad))[clean], wide(rows(q))[clean])


@pytest.mark.parametrize("dtype", UNITS, ids=str)
def test_queries_that_are_not_numbers_give_none(dtype):
    """pytorch/pytorch#141128: on CPUs, outputs of NaN queries were 0."""
    q, k, v = (normal(2, 16, 8).astype(dtype) for _ in range(3))
    assert np.isnan(wide(ka.softmax_attention(np.full_like(q, np.nan), k, v))).all()


@pytest.mark.parametrize("dtype", UNITS, ids=str)
def test_documents_together_are_documents_alone(dtype):
    """pytorch/pytorch#108503: with a mask of four sequences, outputs were not those of each alone."""
    q, k, v = (normal(2, 200, 80).astype(dtype) for _ in range(3))
    ids = np.repeat(np.arange(4), [40, 65, 33, 62])
    mask = ids[:, None] == ids
    exact = dense.softmax_attention(*(wide(x) for x in (q, k, v)), mask)
    for kwargs in (
        {"pattern": patterns.documents(ids)},
        {"pattern": patterns.from_mask(mask)},
        {"score_bias": np.where(mask, 0, -np.inf).astype(dtype)},
    ):
        check(ka.softmax_attention(q, k, v, **kwargs), exact, UNITS[dtype])


@pytest.mark.parametrize("n", [640, 641])
@pytest.mark.parametrize("dtype", UNITS, ids=str)
def test_rows_that_see_only_late_keys(dtype, n):
    """pytorch/pytorch#127055: rows that see no key of the first block were NaN."""
    x = normal(n, 4).astype(dtype)
    place = np.arange(n)
    seen = (place <= place[:, None]) & (place > place[:, None] - 10)
    out = ka.softmax_attention(x, x, x, score_bias=np.where(seen, 0, -np.inf).astype(dtype))
    check(out, dense.softmax_attention(*3 * (wide(x),), seen), UNITS[dtype])


@pytest.mark.parametrize("keys", [33, 97])
@pytest.mark.parametrize("dtype", UNITS, ids=str)
def test_heads_that_share_keys(dtype, keys):
    """pytorch/pytorch#191937: keys and values expanded to all heads gave other outputs, of 1 more than 32 keys."""
    q = normal(4, 20, 64).astype(dtype)
    k, v = (np.broadcast_to(normal(1, keys, 64).astype(dtype), (4, keys, 64)) for _ in range(2))
    mask = RNG.random(keys) < 0.7
    exact = dense.softmax_attention(*(wide(x) for x in (q, k, v)), np.broadcast_to(mask, (20, keys)))
    check(ka.softmax_attention(q, k, v, key_mask=mask), exact, UNITS[dtype])


@pytest.mark.parametrize("dtype", UNITS, ids=str)
def test_numbers_whose_products_are_beyond_the_format(dtype):
    """pytorch/pytorch#121558: queries, keys and values of 133120 gave NaN."""
    x = np.full((40, 64), 60_000 if dtype == np.float16 else 133_120, dtype)
    assert_array_equal(ka.softmax_attention(x, x, x), x)


@pytest.mark.parametrize("dtype", UNITS, ids=str)
def test_values_below_normal_numbers_are_kept(dtype):
    """jax-ml/jax#38995: the least numbers of bfloat16 became 0 on their way."""
    count = 1 << (10 if dtype == np.float16 else 7)
    v = np.repeat(np.arange(count, dtype=np.uint16).view(dtype)[None], 40, axis=0)
    zero = np.zeros((40, 8), dtype)
    for out in (ka.softmax_attention(zero, zero, v), ka.linear_attention(zero, zero, v, ELU)):
        assert_array_equal(out.view(np.uint16), v.view(np.uint16))


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_gradients_do_not_depend_on_strides(name):
    """pytorch/pytorch#133671: outputs of a layout of their own gave cotangents, and gradients, of another order."""
    torch = pytest.importorskip("torch")
    draw = torch.Generator().manual_seed(0)
    given = [torch.randn(2, 49, 2, 32, generator=draw).to(getattr(torch, name)).transpose(1, 2) for _ in range(4)]

    def pulled(q, k, v, g):
        rows = [x.detach().requires_grad_() for x in (q, k, v)]
        return torch.autograd.grad(ka.softmax_attention(*rows, causal=True), rows, g)

    for found, wanted in zip(pulled(*given), pulled(*(x.contiguous() for x in given)), strict=True):
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("name", ["bfloat16", "float16"])
def test_one_key_has_no_gradient(name):
    """Dao-AILab/flash-attention#334: of one query and one key, the query's gradient was NaN. It is 0."""
    torch = pytest.importorskip("torch")
    draw = torch.Generator().manual_seed(352)
    q, k, v = (
        (3 * torch.randn(1, 1, 1, 16, generator=draw)).to(getattr(torch, name)).requires_grad_() for _ in range(3)
    )
    ka.softmax_attention(q, k, v).sum().backward()
    assert not q.grad.any()
    assert not k.grad.any()
    assert (v.grad == 1).all()
