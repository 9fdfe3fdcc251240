"""Long sequences, states that are carried on, and tokens one by one."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import kernattn as ka
from public_reports import dense

RNG = np.random.default_rng(0)
ELU = ka.features.elu1()


def normal(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param((256, 512), id="fla-org/flash-linear-attention#285"),
        pytest.param((1, 2, 65, 300, 512), id="fla-org/flash-linear-attention#494"),
        pytest.param((8, 512), id="fla-org/flash-linear-attention#351"),  # a state that is given was not used
    ],
)
def test_pieces_give_what_the_whole_gives(ends):
    q, k, v = normal(2, 512, 4), normal(2, 512, 4), normal(2, 512, 3)
    whole = dense.linear_attention(dense.elu1(q), dense.elu1(k), v, dense.causal(512, 512))
    state, found = None, []
    for first, last in zip((0, *ends[:-1]), ends, strict=True):
        out, state = ka.causal_linear_attention(*(x[:, first:last] for x in (q, k, v)), ELU, state=state)
        found.append(out)
    assert_allclose(np.concatenate(found, axis=1), whole, atol=5e-6)


@pytest.mark.parametrize(
    "n",
    [
        pytest.param(1334, id="fla-org/flash-linear-attention#98"),  # no multiple of a chunk
        pytest.param(43_884, id="fla-org/flash-linear-attention#122"),  # NaN
        pytest.param(65_537, id="fla-org/flash-linear-attention#906"),  # a tail that was skipped
    ],
)
def test_sequences_of_any_length(n):
    q, k, v = normal(n, 2), normal(n, 2), normal(n, 1)
    out, _ = ka.causal_linear_attention(q, k, v, ELU)
    fq, fk = (dense.elu1(x.astype(np.float64)) for x in (q, k))
    exact = np.sum(fq * np.cumsum(fk * v, axis=0), axis=1) / np.sum(fq * np.cumsum(fk, axis=0), axis=1)
    assert_allclose(out[:, 0], exact, atol=2e-5)


@pytest.mark.parametrize(
    "causal",
    [
        pytest.param(False, id="idiap/fast-transformers#32"),  # the sum of the keys overflowed
        pytest.param(True, id="lucidrains/performer-pytorch#44"),  # no half precision at all
    ],
)
def test_half_precision_over_many_keys(causal):
    q, k, v = (x.astype(np.float16) for x in (normal(600, 4), 300 + normal(600, 4), normal(600, 3)))
    out = ka.causal_linear_attention(q, k, v, ELU)[0] if causal else ka.linear_attention(q, k, v, ELU)
    seen = dense.causal(600, 600) if causal else True
    exact = dense.linear_attention(dense.elu1(q.astype(np.float64)), dense.elu1(k.astype(np.float64)), v, seen)
    assert out.dtype == np.float16
    assert_allclose(out, exact, atol=5e-3)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_positive_features_of_large_rows(dtype):
    """facebookresearch/xformers#98: features of FAVOR overflowed in half precision."""
    phi = ka.random_features(ka.kernels.Softmax(), 8, 256, "positive", rng=0)
    q, k, v = (x.astype(dtype) for x in (6 * normal(9, 8), 6 * normal(12, 8), normal(12, 3)))
    fq, fk = (np.asarray(phi(x.astype(np.float64))) for x in (q, k))
    exact = dense.linear_attention(fq, fk, v)
    assert_allclose(ka.linear_attention(q, k, v, phi), exact, atol=2e-2 if dtype == np.float16 else 1e-3)


@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param((64,) * 10, id="idiap/fast-transformers#46"),
        pytest.param((5, 128, 1), id="idiap/fast-transformers#105"),
        pytest.param((77,), id="huggingface/transformers#46773"),  # a batch of one was not masked
        pytest.param((30, 31), id="berlino/gated_linear_attention#3"),
    ],
)
@pytest.mark.parametrize("left", [False, True])
def test_padding_is_as_if_cut_off(lengths, left):
    q, k, v = (normal(len(lengths), 128, 4) for _ in range(3))
    mask = np.arange(128) < np.array(lengths)[:, None]
    mask = mask[:, ::-1] if left else mask
    together, _ = ka.causal_linear_attention(q, k, v, ELU, key_mask=mask)
    whole = ka.linear_attention(q, k, v, ELU, key_mask=mask)
    for i, kept in enumerate(mask):
        alone, _ = ka.causal_linear_attention(q[i, kept], k[i, kept], v[i, kept], ELU)
        assert_allclose(together[i, kept], alone, atol=3e-6)
        assert_allclose(whole[i], ka.linear_attention(q[i], k[i, kept], v[i, kept], ELU), atol=3e-6)


@pytest.fixture(scope="module")
def model():
    config = ka.transformer.Config(dim=8, layers=2, heads=2, vocab=13, length=32)
    return ka.transformer.initial_params(config, rng=0), config


@pytest.mark.parametrize("attention", [None, ELU], ids=["exact", "linear"])
def test_tokens_one_by_one(model, attention):
    """lucidrains/x-transformers#311: with a cache, outputs were others from the second token on."""
    tokens = np.arange(10)[None] * 5 % 13
    whole = ka.transformer.forward(*model, tokens, attention=attention)
    logits, state = ka.transformer.prefill(*model, tokens[:, :1], attention=attention)
    found = [logits[:, -1] if logits.ndim == 3 else logits]
    for i in range(1, 10):
        logits, state = ka.transformer.step(*model, state, tokens[:, i], attention=attention)
        found.append(logits)
    assert_allclose(np.stack(found, axis=1), whole, atol=2e-5)


@pytest.mark.parametrize(
    "lengths",
    [
        pytest.param((4, 9), id="huggingface/transformers#22707"),
        pytest.param((3, 9, 9), id="huggingface/transformers#30378"),
        pytest.param((1, 6, 9), id="TransformerLensOrg/TransformerLens#1005"),
    ],
)
@pytest.mark.parametrize("attention", [None, ELU], ids=["exact", "linear"])
def test_prompts_of_a_batch_go_on_as_alone(model, lengths, attention):
    prompts = np.random.default_rng(1).integers(0, 13, (len(lengths), 9))
    options = {"attention": attention, "temperature": 0.0}
    together = ka.transformer.generate(*model, prompts, 6, lengths=np.array(lengths), **options)
    for prompt, length, found in zip(prompts, lengths, together, strict=True):
        assert_array_equal(found, ka.transformer.generate(*model, prompt[:length], 6, **options))


@pytest.mark.parametrize("attention", [None, ELU], ids=["exact", "linear"])
def test_rows_of_a_decoder_are_reused(model, attention):
    """vllm-project/tpu-inference#2779: who joined, or came back, read what another had left in its place."""
    params, config = model
    rng = np.random.default_rng(2)
    prompts, tokens = rng.integers(0, 13, (9, 4)), rng.integers(0, 13, (9, 20))
    decoder = ka.transformer.Decoder(params, config, attention=attention)
    decoder.prefill(prompts[:3])
    rows, taken, waiting, paused = [0, 1, 2], np.zeros(9, int), [3, 4, 5, 6, 7, 8], {}
    found = [[] for _ in prompts]
    for turn in range(40):
        outs = decoder.step(tokens[rows, taken[rows]])
        for row, who in enumerate(rows):
            found[who].append(outs[row])
            taken[who] += 1
        row = turn % 3
        paused[rows[row]] = decoder.take(row)
        if waiting and turn % 2:
            rows[row] = waiting.pop()
            state = ka.transformer.prefill(params, config, prompts[rows[row], None], attention=attention)[1]
            decoder.put(row, ka.take_states(state, 0))
        else:
            rows[row] = min(paused, key=lambda who: taken[who])
            decoder.put(row, paused.pop(rows[row]))
    for who, outs in enumerate(found):
        alone = ka.transformer.Decoder(params, config, attention=attention)
        alone.prefill(prompts[who, None])
        assert_array_equal(outs, [alone.step(token[None])[0] for token in tokens[who, : taken[who]]])


def test_drafts_that_are_rejected_leave_the_state():
    """microsoft/onnxruntime#31157: after a draft was verified, the state held its rejected tokens too."""
    q, k, v = normal(2, 20, 4), normal(2, 20, 4), normal(2, 20, 3)

    def go_on(first, last, state):
        return ka.causal_linear_attention(*(x[:, first:last] for x in (q, k, v)), ELU, state=state)

    _, before = go_on(0, 10, None)
    kept = before.s.copy(), before.z.copy()
    draft, _ = go_on(10, 16, before)
    assert_array_equal(before.s, kept[0])
    assert_array_equal(before.z, kept[1])
    accepted, after = go_on(10, 13, before)
    rest, _ = go_on(13, 20, after)
    whole = dense.linear_attention(dense.elu1(q), dense.elu1(k), v, dense.causal(20, 20))
    assert_allclose(draft, whole[:, 10:16], atol=3e-6)
    assert_allclose(np.concatenate([accepted, rest], axis=1), whole[:, 10:], atol=3e-6)
