"""Masks, biases, windows and causal rows of attention."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import kernattn as ka
from kernattn import errors, patterns
from kernattn.attention import linformer_attention, nystrom_attention
from public_reports import dense

RNG = np.random.default_rng(0)
ELU = ka.features.elu1()


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("given", [1e10, np.inf, np.nan])
def test_what_stands_in_masked_keys_has_no_effect(given):
    """pytorch/pytorch#101967: NaN in a masked key made the output NaN, where 1e10 had no effect."""
    q, k, v = np.arange(24, dtype=np.float32).reshape(3, 2, 4) / 8
    mask = np.array([True, False])
    spoilt = [np.where(mask[:, None], x, np.float32(given)) for x in (k, v)]
    assert_allclose(ka.softmax_attention(q, *spoilt, key_mask=mask), [v[0], v[0]], rtol=1e-6)
    assert_allclose(ka.linear_attention(q, *spoilt, ELU, key_mask=mask), [v[0], v[0]], rtol=1e-6)


@pytest.mark.parametrize(
    "batch",
    [
        pytest.param(1, id="pytorch/pytorch#103963"),
        pytest.param(3, id="ml-explore/mlx#2608"),  # one sequence without keys must not break the batch
    ],
)
def test_rows_that_see_nothing_are_zero(batch):
    q, k, v = (normal(batch, 8, 8) for _ in range(3))
    mask = np.ones((batch, 8), bool)
    mask[0] = False
    assert_allclose(
        ka.softmax_attention(q, k, v, key_mask=mask), dense.softmax_attention(q, k, v, mask[:, None]), atol=2e-6
    )
    assert_allclose(
        ka.linear_attention(q, k, v, ELU, key_mask=mask),
        dense.linear_attention(dense.elu1(q), dense.elu1(k), v, mask[:, None]),
        atol=2e-6,
    )


def test_the_least_float_as_a_bias_of_all_keys():
    """pytorch/pytorch#109517: a mask of -3.4e38 in a whole row gave NaN."""
    q, k, v = (normal(5, 4) for _ in range(3))
    out = ka.softmax_attention(q, k, v, key_bias=np.full(5, np.finfo(np.float32).min))
    assert np.all((out >= v.min(axis=0) - 1e-6) & (out <= v.max(axis=0) + 1e-6))


def test_padding_on_the_left_of_causal_rows():
    """tracel-ai/burn#4697: causal rows before the first key that is not padding were NaN."""
    q, k, v = (normal(2, 7, 4) for _ in range(3))
    mask = np.arange(7) >= np.array([[0], [3]])
    seen = dense.causal(7, 7) & mask[:, None]
    assert_allclose(
        ka.softmax_attention(q, k, v, causal=True, key_mask=mask), dense.softmax_attention(q, k, v, seen), atol=2e-6
    )


def test_padding_on_the_left_in_half_precision():
    """huggingface/transformers#17306: the least half-precision number plus a score is -inf, and the row NaN."""
    q, k, v = (4 * normal(6, 8, dtype=np.float16) for _ in range(3))
    mask = np.arange(6) >= 2
    out = ka.softmax_attention(q, k, v, causal=True, key_mask=mask)
    assert_allclose(out, dense.softmax_attention(q, k, v, dense.causal(6, 6) & mask), atol=2e-2)


def test_masks_of_integers_are_refused():
    """patrick-kidger/equinox#274: a mask of integers was taken, and rows without a key were NaN."""
    rows = np.arange(1.0, 10.0).reshape(3, 3)
    with pytest.raises(errors.DTypeError, match="key_mask must have dtype bool"):
        ka.softmax_attention(rows, rows, rows, key_mask=np.array([1, 1, 0]))


def test_masks_with_an_axis_of_queries_are_refused():
    """jax-ml/jax#28974: a mask (B, 1, 1, l) ended in an error about a bias that nobody had given."""
    q, mask = normal(4, 2, 8, 4), np.arange(8) < np.array([3, 8, 1, 5])[:, None, None, None]
    for name, given in (("key_mask", mask), ("key_bias", mask.astype(np.float32))):
        with pytest.raises(
            errors.ShapeError, match=rf"{name} must broadcast to .*axis of queries, give {name}\[..., 0"
        ):
            ka.softmax_attention(q, q, q, **{name: given})
    out = ka.softmax_attention(q, q, q, key_mask=mask[..., 0, :])
    assert_allclose(out, dense.softmax_attention(q, q, q, mask), atol=3e-6)


@pytest.mark.parametrize("lead", [(3, 1), (1, 2), (3, 2), (2,), ()])
@pytest.mark.parametrize(("n", "length"), [(7, 11), (1, 33), (65, 65)])
def test_biases_that_heads_or_sequences_share(lead, n, length):
    """microsoft/onnxruntime#24017: a bias (B, 1, n, l) was read at the wrong place from the second sequence on."""
    q, k, v, bias = normal(3, 2, n, 4), normal(3, 2, length, 4), normal(3, 2, length, 3), normal(*lead, n, length)
    out = ka.softmax_attention(q, k, v, score_bias=bias)
    assert_allclose(out, dense.softmax_attention(q, k, v, bias=bias), atol=3e-6)


def test_patterns_of_another_batch_or_length_are_refused():
    """pytorch/pytorch#139462: with a block mask of more keys, all but the first sequence were zeros.

    pytorch/pytorch#152297: a mask of the batch before met a smaller last batch.
    """
    q = normal(6, 16, 4)
    with pytest.raises(errors.ShapeError, match="the plan is for n = 16, l = 32; got n = 16, l = 16"):
        ka.softmax_attention(q, q, q, pattern=patterns.local(4, 0).plan(16, 32))
    with pytest.raises(errors.ShapeError, match="the pattern is of 8 heads"):
        ka.softmax_attention(q, q, q, pattern=patterns.from_mask(np.ones((8, 16, 16), bool)))


def test_boolean_masks_of_a_batch():
    """facebookresearch/xformers#683: a boolean mask failed on its strides."""
    q, k, v = (normal(32, 10, 16) for _ in range(3))
    mask = np.random.default_rng(1).random((32, 10)) < 0.6
    assert_allclose(
        ka.softmax_attention(q, k, v, key_mask=mask), dense.softmax_attention(q, k, v, mask[:, None]), atol=3e-6
    )


@pytest.mark.parametrize(
    ("n", "length"),
    [
        pytest.param(77, 77, id="facebookresearch/xformers#808"),
        pytest.param(43, 43, id="facebookresearch/xformers#813"),
        pytest.param(12, 7, id="facebookresearch/xformers#576"),
    ],
)
def test_biases_of_any_length(n, length):
    q, k, v = normal(2, 4, n, 8), normal(2, 4, length, 8), normal(2, 4, length, 8)
    bias = normal(2, 4, length)
    out = ka.softmax_attention(q, k, v, key_bias=bias)
    assert_allclose(out, dense.softmax_attention(q, k, v, bias=bias[..., None, :]), atol=3e-6)


@pytest.mark.parametrize(
    ("n", "length"),
    [
        pytest.param(2, 5, id="Dao-AILab/flash-attention#517"),
        pytest.param(8, 16, id="Dao-AILab/flash-attention#380"),
        pytest.param(5, 6, id="Dao-AILab/flash-attention#402"),
        pytest.param(1, 7, id="Dao-AILab/flash-attention#282"),
        pytest.param(1, 9, id="lucidrains/x-transformers#187"),  # one query beside cached keys saw the first alone
        pytest.param(7, 3, id="Dao-AILab/flash-attention#1778"),  # more queries than keys: the first see nothing
    ],
)
def test_causal_rows_end_with_the_last_key(n, length):
    q, k, v = normal(n, 4), normal(length, 4), normal(length, 3)
    out = ka.softmax_attention(q, k, v, causal=True)
    assert_allclose(out, dense.softmax_attention(q, k, v, dense.causal(n, length)), atol=2e-6)


def test_fewer_keys_than_queries():
    """Dao-AILab/flash-attention#20: other numbers of keys than of queries read foreign memory."""
    q, k, v = normal(2, 300, 4), normal(2, 11, 4), normal(2, 11, 3)
    assert_allclose(ka.softmax_attention(q, k, v), dense.softmax_attention(q, k, v), atol=2e-6)


@pytest.mark.parametrize("width", [1, 4])
def test_windows_without_a_mask(width):
    """jax-ml/jax#32300: the window was ignored where there was no mask."""
    q, k, v = (normal(20, 4) for _ in range(3))
    gap = np.arange(20) - np.arange(20)[:, None]
    out = ka.softmax_attention(q, k, v, pattern=patterns.local(0, width))
    assert_allclose(out, dense.softmax_attention(q, k, v, (gap >= 0) & (gap <= width)), atol=2e-6)


def test_causal_windows_over_longer_sequences():
    """facebookresearch/xformers#1076: a causal window of 128 failed on 512 tokens."""
    q, k, v = (normal(512, 8) for _ in range(3))
    gap = np.arange(512)[:, None] - np.arange(512)
    out = ka.softmax_attention(q, k, v, pattern=patterns.local(127, 0), causal=True)
    assert_allclose(out, dense.softmax_attention(q, k, v, (gap >= 0) & (gap <= 127)), atol=3e-6)


def test_sequences_in_a_row():
    """NVIDIA/TransformerEngine#1005: causal attention of packed sequences asked for a mask of padding."""
    q, k, v = (normal(9, 4) for _ in range(3))
    ids = np.array([0, 0, 0, 1, 1, 2, 2, 2, 2])
    seen = dense.causal(9, 9) & (ids == ids[:, None])
    exact = dense.softmax_attention(q, k, v, seen)
    assert_allclose(ka.softmax_attention(q, k, v, causal=True, pattern=patterns.documents(ids)), exact, atol=2e-6)
    out, _ = ka.causal_linear_attention(q, k, v, ELU, segment_ids=ids)
    assert_allclose(out, dense.linear_attention(dense.elu1(q), dense.elu1(k), v, seen), atol=2e-6)


def test_padding_of_compressed_keys():
    """tatp22/linformer-pytorch#11: keys are compressed before a mask of keys can be applied."""
    q, k, v, e, f = normal(6, 4), normal(9, 4), normal(9, 3), normal(2, 9), normal(2, 9)
    mask = np.arange(9) < 5
    out = linformer_attention(q, k, v, e, f, key_mask=mask)
    assert_allclose(out, dense.softmax_attention(q, e[:, :5] @ k[:5], f[:, :5] @ v[:5]), atol=3e-6)


def test_each_matrix_of_a_batch_has_its_own_inverse():
    """mlpen/Nystromformer#3: the start of the inverse was shared by a batch, and results changed with it."""
    q, k, v = (normal(3, 16, 4) * np.array([0.1, 1, 3], np.float32)[:, None, None] for _ in range(3))
    together = nystrom_attention(q, k, v, num_landmarks=4)
    alone = np.stack([nystrom_attention(*each, num_landmarks=4) for each in zip(q, k, v, strict=True)])
    assert_allclose(together, alone, atol=2e-5)


def test_the_inverse_converges():
    """mlpen/Nystromformer#6: the iteration did not converge. With all tokens as landmarks A A^+ A is A."""
    q, k, v = (normal(8, 4, dtype=np.float64) for _ in range(3))
    out = nystrom_attention(q, k, v, num_landmarks=8, iterations=40)
    assert_allclose(out, dense.softmax_attention(q, k, v), atol=1e-6)


def test_grouped_queries():
    """nshepperd/flash_attn_jax#4: queries of more heads than keys."""
    torch, kt = pytest.importorskip("torch"), pytest.importorskip("kernattn.torch")
    q, k, v = normal(2, 6, 5, 4), normal(2, 2, 5, 4), normal(2, 2, 5, 3)
    out = kt.LinearAttention()(*map(torch.from_numpy, (q, k, v)))
    repeated = [np.repeat(x, 3, axis=1) for x in (k, v)]
    assert_allclose(out, dense.linear_attention(dense.elu1(q), dense.elu1(repeated[0]), repeated[1]), atol=2e-6)
