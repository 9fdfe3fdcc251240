"""What a model may ask of its attention that kernattn does not do: each is refused by its name."""

import functools

import pytest
import torch
from transformers import BloomConfig, BloomForCausalLM, StaticCache

from huggingface.gated_models import make
from huggingface.models import bert, gpt2, llama, mistral, tokens
from kernattn.errors import ParameterError
from kernattn.huggingface import StateCache, register
from kernattn.huggingface._call import read_call
from kernattn.huggingface._masks import read_key_mask

BOTH = pytest.mark.parametrize("attention", ["kernattn", "kernattn_favor"])


@pytest.fixture(autouse=True)
def _favor():
    register(16, rng=0)


def asked(model, attention, message, x=None, **inputs):
    model.set_attn_implementation(attention)
    with torch.no_grad(), pytest.raises(ParameterError, match=message):
        model(tokens(1, 9) if x is None else x, **inputs)


@BOTH
def test_dropout(attention):
    made = gpt2(attn_pdrop=0.1)
    asked(made.train(), attention, "dropout of attention must be 0.*got 0.1 from GPT2Attention.*load or make the model")
    made.eval()
    with torch.no_grad():
        made(tokens(1, 9))


def test_sliding_windows():
    asked(mistral(), "kernattn_favor", "features have no window; got 4 from MistralAttention.*'kernattn', has one")
    asked(mistral(), "kernattn_favor", "features have no window", past_key_values=StateCache())
    asked(llama(), "kernattn", "sliding_window must be a positive integer", sliding_window=1.5)
    mask = torch.ones((1, 9, 9), dtype=torch.bool).tril()
    with pytest.raises(ParameterError, match=r"attention_mask must be \(batch, l\)"):
        read_key_mask(mask)


@BOTH
def test_packed_sequences(attention):
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    message = r"no packed sequences: position_ids begin anew .* hold 4 \+ 5 tokens; give each sequence a row of its own"
    asked(llama(), attention, message, position_ids=positions, use_cache=False)
    bounds = {f"cu_seq_lens_{side}": torch.tensor([0, 4, 9]) for side in "qk"}
    asked(llama(), attention, "cu_seq_lens_q must be None: .*give each sequence a row of its own, padded", **bounds)
    unseen = {"position_ids": positions, "attention_mask": torch.ones((1, 9), dtype=torch.long)}
    message = "position_ids must not go back to 0 within a row.*got 0 after 3 at token 4 of row 0: give each"
    for given in ({"position_ids": positions}, unseen, unseen | {"use_cache": False}):
        for model in (llama(), gpt2()):
            asked(model, attention, message, **given)


@BOTH
def test_positions_of_one_sequence(attention):
    """Padded on either side, with numbers left out, or again after the prompt: none of these is packed."""
    made, x = llama(), tokens(2, 9)
    made.set_attn_implementation(attention)
    mask, ones = torch.ones_like(x), torch.ones((1, 9), dtype=torch.long)
    mask[0, :3], mask[1, 6:] = 0, 0
    positions = torch.tensor([[1, 1, 1, 0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5, 0, 0, 0]])
    with torch.no_grad():
        whole = made(x, attention_mask=mask, position_ids=positions).logits
        alone = made(x[:1, 3:], attention_mask=ones[:, 3:]).logits
        made(x[:1], attention_mask=ones, position_ids=torch.tensor([[0, 1, 2, 5, 6, 3, 4, 4, 9]]))
    torch.testing.assert_close(whole[:1, 3:], alone, rtol=0, atol=1e-5)


@BOTH
def test_masks_of_pairs(attention):
    mask = torch.ones((1, 1, 9, 9), dtype=torch.bool).tril()
    asked(llama(), attention, r"attention_mask must be \(batch, l\)", attention_mask=mask)
    asked(llama(), attention, "torch.float32", attention_mask=torch.zeros((1, 1, 9, 9)))


@BOTH
def test_static_caches(attention):
    made = llama()
    for mask in (None, torch.ones((1, 9), dtype=torch.long)):
        cache = StaticCache(made.config, max_cache_len=20)
        asked(made, attention, "got a static one", past_key_values=cache, attention_mask=mask)


def test_static_caches_of_a_window():
    """generate makes the mask before the model does, and hands it on as one of a shape of its own."""
    made, x = mistral(), tokens(2, 6)
    made.set_attn_implementation("kernattn")
    message = r"attention_mask must be \(batch, l\); got shape .* static cache: the cache must grow"
    with torch.no_grad(), pytest.raises(ParameterError, match=message):
        made.generate(x, attention_mask=torch.ones_like(x), max_new_tokens=3, cache_implementation="static")
    asked(llama(), "kernattn", message, x, attention_mask=torch.ones((2, 6, 6), dtype=torch.long).tril())


@BOTH
@pytest.mark.parametrize("length", [7, 12])
@pytest.mark.parametrize("use_cache", [False, True])
@pytest.mark.parametrize("model", [llama, bert])
def test_masks_of_other_lengths(attention, model, use_cache, length):
    mask = torch.ones((1, length), dtype=torch.long)
    message = rf"attention_mask must have an entry for each of the 9 tokens so far; got shape \(1, {length}\)"
    asked(model(), attention, message, attention_mask=mask, **{"use_cache": use_cache} if model is llama else {})


@BOTH
@pytest.mark.parametrize("name", ["softcap", "position_bias", "s_aux", "cache", "cu_seq_lens_q", "cu_seq_lens_k"])
def test_other_kinds_of_scores(attention, name):
    asked(llama(), attention, f"{name} must be None", **{name: 1.0})


@BOTH
@pytest.mark.parametrize("model", [llama, gpt2, bert])
def test_matrices_of_attention(attention, model):
    asked(model(), attention, "output_attentions must be False", output_attentions=True)


@BOTH
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")
def test_scripts(attention):
    made = llama(use_cache=False)
    made.set_attn_implementation(attention)
    with pytest.raises(ParameterError, match=r"torch.jit.trace cannot trace kernattn.* use torch.compile"):
        torch.jit.trace(made, (tokens(1, 9),))


def test_a_cache_by_the_name_of_another_version():
    """transformers calls it cache from 5.24 on; before, the model hands it to attention unread."""
    call = functools.partial(read_call, torch.nn.Module(), *torch.zeros(3, 1, 1, 1, 1), None)
    with pytest.raises(ParameterError, match="got a StateCache: give it as past_key_values"):
        call(cache=StateCache())


def test_a_state_for_exact_attention():
    asked(llama(), "kernattn", "'kernattn_favor'", past_key_values=StateCache())


def test_a_state_for_attention_that_does_not_know_it():
    asked(llama(), "sdpa", "what ran in this model did not", past_key_values=StateCache())
    made, cache = llama(num_hidden_layers=1), StateCache()
    made.set_attn_implementation("sdpa")
    with torch.no_grad():
        made(tokens(1, 9), past_key_values=cache)
    asked(made, "sdpa", "what ran in this model did not", tokens(1, 1), past_key_values=cache)


@pytest.mark.parametrize("family", ["Qwen3Next", "FalconH1"])
def test_a_state_for_layers_that_have_their_own(family):
    asked(make(family), "kernattn_favor", "layers with states of their own", past_key_values=StateCache())


def test_a_state_for_attention_of_all_to_all():
    asked(llama(is_causal=False), "kernattn_favor", "is for causal attention", past_key_values=StateCache())


def test_a_state_of_another_draw():
    made, cache, favor = llama(), StateCache(), register(16, rng=0)
    made.set_attn_implementation("kernattn_favor")
    with torch.no_grad():
        made(tokens(1, 9), past_key_values=cache)
    favor.redraw()
    with torch.no_grad(), pytest.raises(ValueError, match="one draw"):
        made(tokens(1, 1), past_key_values=cache)


def test_a_state_cannot_forget_the_last_tokens():
    cache = StateCache()
    made = llama()
    made.set_attn_implementation("kernattn_favor")
    with torch.no_grad():
        made(tokens(1, 9), past_key_values=cache)
    assert not cache.is_croppable
    with pytest.raises(ParameterError, match=r"assistant_model .* got crop\(-2\)"):
        cache.crop(-2)


@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("part", ["attn", "mlp"])
def test_a_state_after_a_forward_pass_that_failed(layer, part):
    """A retry must not count tokens twice: where nothing was added it works, else it is refused."""
    made, cache, x = gpt2(n_layer=3), StateCache(), tokens(1, 9)
    made.set_attn_implementation("kernattn_favor")
    broken = getattr(made.transformer.h[layer], part)

    def fail(*_):
        raise MemoryError

    with torch.no_grad():
        wanted = made(x).logits
        failing = broken.register_forward_pre_hook(fail)
        with pytest.raises(MemoryError):
            made(x, past_key_values=cache)
        failing.remove()
        if (layer, part) == (0, "attn"):
            torch.testing.assert_close(made(x, past_key_values=cache).logits, wanted, rtol=0, atol=1e-5)
            assert cache.get_seq_length() == 9
        else:
            with pytest.raises(ParameterError, match=r"layers .* have seen .* a forward pass failed; make a new"):
                made(x, past_key_values=cache)


def test_a_state_whose_attention_refused_a_call():
    made, cache, x = gpt2(attn_pdrop=0.1).train(), StateCache(), tokens(1, 9)
    asked(made, "kernattn_favor", "dropout", x, past_key_values=cache)
    with torch.no_grad():
        torch.testing.assert_close(made.eval()(x, past_key_values=cache).logits, made(x).logits, rtol=0, atol=1e-5)
    assert cache.get_seq_length() == 9


def test_a_state_in_use():
    """`generate` hands a model no tokens at all where a cache has seen as many as its text has."""
    made, cache = llama(), StateCache()
    made.set_attn_implementation("kernattn_favor")
    with torch.no_grad():
        made(tokens(2, 9), past_key_values=cache)
    asked(made, "kernattn_favor", "holds 2 sequences; got 3", tokens(3, 9), past_key_values=cache)
    asked(made, "kernattn_favor", "seen 9 tokens; got a text with none after", tokens(2, 0), past_key_values=cache)


def test_models_with_attention_of_their_own_are_not_changed():
    """As the guide says: transformers leaves such a model its attention, and its classes tell."""
    made = BloomForCausalLM(BloomConfig(vocab_size=61, n_layer=1, n_head=2, hidden_size=16)).eval()
    assert not made._can_set_attn_implementation()
    assert gpt2()._can_set_attn_implementation()
    with torch.no_grad():
        own = made(tokens(1, 9)).logits
        made.set_attn_implementation("kernattn_favor")
        assert torch.equal(made(tokens(1, 9)).logits, own)
