"""Generation with the caches of transformers, and with states, which do not grow."""

import copy

import pytest
import torch
from transformers import BartConfig, BartModel, DynamicCache

import kernattn as ka
from huggingface.models import gpt2, llama, padded, tokens
from kernattn.huggingface import StateCache, register
from kernattn.huggingface._cache import StateLayer

DECODERS = pytest.mark.parametrize("model", [gpt2, llama])


@pytest.fixture(autouse=True)
def _favor():
    register(64, rng=0)


def logits(model, x, cache=None, **inputs):
    with torch.no_grad():
        return model(x, past_key_values=cache, use_cache=cache is not None, **inputs).logits


@DECODERS
@pytest.mark.parametrize(
    ("attention", "cache"),
    [("kernattn", DynamicCache), ("kernattn_favor", DynamicCache), ("kernattn_favor", StateCache)],
)
def test_parts_of_a_text_give_what_the_whole_gives(model, attention, cache):
    made, x, mask = model(), tokens(3, 24), padded(3, 24, 4)
    made.set_attn_implementation(attention)
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    whole = logits(made, x, attention_mask=mask, position_ids=positions)
    kept, parts = cache(), []
    for start, end in ((0, 9), (9, 15), (15, 16), (16, 17), (17, 24)):
        at = slice(start, end)
        inputs = {"attention_mask": mask[:, :end], "position_ids": positions[:, at]}
        parts.append(logits(made, x[:, at], kept, **inputs))
    found = torch.cat(parts, dim=1)
    torch.testing.assert_close(found[mask.bool()], whole[mask.bool()], rtol=0, atol=2e-5)
    assert kept.get_seq_length() == 24


@DECODERS
@pytest.mark.parametrize("beams", [1, 3])
def test_greedy_text_is_that_without_a_cache(model, beams):
    made, x, mask = model(), tokens(2, 11), padded(2, 11, 3)
    made.set_attn_implementation("kernattn_favor")
    settings = {"attention_mask": mask, "max_new_tokens": 12, "do_sample": False, "num_beams": beams}
    caches = {"use_cache": False}, {"past_key_values": DynamicCache()}, {"past_key_values": StateCache()}
    alone, grown, constant = (made.generate(x, **settings, **cache) for cache in caches)
    assert alone.shape == (2, 23)
    assert torch.equal(grown, alone)
    assert torch.equal(constant, alone)


@pytest.mark.parametrize("attention", ["kernattn", "kernattn_favor"])
def test_texts_of_encoders_have_masks_of_their_own(attention):
    """vllm-project/vllm-omni#5865: queries were hidden by the mask of keys that are fewer, or more, than they are."""
    sizes = {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "attention_dropout": 0.0, "vocab_size": 61}
    heads = {f"{side}_attention_heads": 2 for side in ("encoder", "decoder")}
    widths = {f"{side}_ffn_dim": 16 for side in ("encoder", "decoder")}
    torch.manual_seed(0)
    made = BartModel(BartConfig(**sizes, **heads, **widths, max_position_embeddings=32)).eval()
    made.set_attn_implementation(attention)
    x, mask = tokens(2, 9), padded(2, 9, -4)
    for length in (5, 12):
        y = tokens(2, length, seed=1)
        with torch.no_grad():
            found = made(x, attention_mask=mask, decoder_input_ids=y)[0]
            alone = made(x[:1, :5], decoder_input_ids=y[:1])[0]
        torch.testing.assert_close(found[:1], alone, rtol=0, atol=1e-5)


@DECODERS
def test_memory_does_not_grow(model):
    made, cache, sizes = model(), StateCache(), []
    made.set_attn_implementation("kernattn_favor")
    for length in (1, 40, 1, 1):
        logits(made, tokens(2, length), cache)
        sizes.append(cache.nbytes)
    assert cache.get_seq_length() == 43
    kv_heads, dim = getattr(made.config, "num_key_value_heads", 2), 32 // made.config.num_attention_heads
    assert sizes == [4 * 2 * 2 * kv_heads * 64 * (dim + 2)] * 4


def test_sequences_are_chosen_repeated_and_forgotten():
    made, x = llama(), tokens(3, 10)
    made.set_attn_implementation("kernattn_favor")
    whole = logits(made, x)
    cache = StateCache()
    assert cache.nbytes == 0
    logits(made, x[:, :8], cache)
    assert cache.batch_size == 3
    cache.batch_select_indices(torch.tensor([2, 0]))
    cache.batch_repeat_interleave(2)
    cache.reorder_cache(torch.tensor([3, 0]))
    assert cache.batch_size == 2
    torch.testing.assert_close(logits(made, x[[0, 2], 8:], cache), whole[[0, 2], 8:], rtol=0, atol=1e-5)
    cache.reset()
    assert (cache.nbytes, cache.get_seq_length()) == (0, 0)
    torch.testing.assert_close(logits(made, x, cache), whole, rtol=0, atol=1e-5)


def test_a_prompt_is_read_once_for_many_texts():
    """huggingface/huggingface-llama-recipes#33: where gradients are recorded, a cache could not be copied."""
    made, x = llama(), tokens(2, 12)
    made.set_attn_implementation("kernattn_favor")
    cache, whole = StateCache(), logits(made, x)
    made(x[:, :6], past_key_values=cache)
    for _ in range(2):
        fork = copy.deepcopy(cache)
        for at in (slice(6, 7), slice(7, 12)):
            found = logits(made, x[:, at], fork)
            torch.testing.assert_close(found, whole[:, at], rtol=0, atol=1e-5)
        assert (fork.get_seq_length(), cache.get_seq_length()) == (12, 6)
        fork.reset()
    assert cache.batch_size == 2


def test_a_window_goes_with_its_sequences():
    """A layer may keep the state of attention with a window: all of it is chosen, repeated and counted."""
    phi, layer = ka.features.elu1(), StateLayer()
    q, k, v = torch.randn(3, 3, 2, 9, 4, generator=torch.Generator().manual_seed(0))

    def attend(state):
        return ka.attention.window_attention(q[..., at, :], k[..., at, :], v[..., at, :], phi, 4, state=state)

    whole, _ = ka.attention.window_attention(q, k, v, phi, 4)
    at = slice(0, 6)
    layer.read(6, attend)
    layer.batch_select_indices(torch.tensor([2, 0]))
    layer.batch_repeat_interleave(2)
    layer.reorder_cache(torch.tensor([3, 0]))
    assert layer.batch_size == 2
    at, (q, k, v) = slice(6, 9), (x[[0, 2]] for x in (q, k, v))
    torch.testing.assert_close(layer.read(3, attend), whole[[0, 2], :, 6:], rtol=0, atol=1e-5)
    cache = StateCache()
    cache.layers.append(layer)
    assert cache.nbytes == sum(part.nbytes for part in layer.state[:-1]) > 2 * 2 * 4 * (4 + 4) * 4
