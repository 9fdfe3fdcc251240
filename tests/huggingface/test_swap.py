"""Models of transformers whose attention is swapped by name."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers import AttentionInterface

from covering import turns
from huggingface.models import MODELS, answers, bert, gpt2, llama, mistral, modern_bert, padded, tokens, vit
from kernattn.errors import ParameterError
from kernattn.huggingface import Favor, register

PADDINGS = [None, 5, -4]


def relative(approximate, exact, mask=None):
    """The Frobenius norm of an error over that of what it is an error of, at the tokens that count."""
    kept = slice(None) if mask is None else mask.bool()
    return float((approximate - exact)[kept].norm() / exact[kept].norm())


@pytest.fixture(autouse=True)
def _favor():
    register(64, rng=0)


@pytest.mark.parametrize(("model", "left"), turns(MODELS, PADDINGS))
def test_exact_attention_is_the_models_own(model, left):
    made, x = MODELS[model](), tokens(2, 23)
    mask = None if left is None else padded(2, 23, left)
    own, ours = (answers(made, name, x, attention_mask=mask) for name in ("eager", "kernattn"))
    kept = slice(None) if mask is None else mask.bool()
    assert float((ours - own)[kept].abs().max()) <= 1e-6 * max(1.0, float(own.abs().max()))


@pytest.mark.parametrize("left", [None, 5])
@pytest.mark.parametrize("model", [mistral, modern_bert])
def test_windows_are_the_models_own(model, left):
    made, x = model(), tokens(2, 23)
    mask = None if left is None else padded(2, 23, left)
    own, ours = (answers(made, name, x, attention_mask=mask) for name in ("eager", "kernattn"))
    kept = slice(None) if mask is None else mask.bool()
    torch.testing.assert_close(ours[kept], own[kept], rtol=0, atol=1e-6)
    far = answers(made, "kernattn", torch.cat([x[:, :1] % 9 + 1, x[:, 1:]], dim=1), attention_mask=mask)
    assert torch.equal(far[:, -1], ours[:, -1]) is (model is mistral)


def test_texts_within_windows_go_on_from_a_cache():
    made, x = mistral(), tokens(2, 9)
    settings = {"attention_mask": padded(2, 9, 3), "max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    texts = []
    for attention in ("eager", "kernattn"):
        made.set_attn_implementation(attention)
        texts.append(made.generate(x, **settings))
    assert torch.equal(*texts)


@pytest.mark.parametrize(("model", "left"), turns(MODELS, PADDINGS))
def test_padded_tokens_change_nothing(model, left):
    made, x = MODELS[model](), tokens(2, 23)
    mask = padded(2, 23, left or 3)
    other = torch.where(mask.bool(), x, torch.flip(x, (1,)))
    first, second = (answers(made, "kernattn_favor", each, attention_mask=mask) for each in (x, other))
    torch.testing.assert_close(first[mask.bool()], second[mask.bool()], rtol=0, atol=0)


@pytest.mark.parametrize("model", MODELS)
def test_favor_nears_the_model_as_features_grow(model):
    made, x = MODELS[model](), tokens(2, 48)
    exact = answers(made, "eager", x)
    errors = []
    for m in (16, 1024):
        redraws = []
        for seed in range(4):
            register(m, rng=seed)
            redraws.append(relative(answers(made, "kernattn_favor", x), exact))
        errors.append(np.mean(redraws))
    assert errors[1] < errors[0] / 5  # 8 for iid features; 5.1 to 9.3 measured


@pytest.mark.parametrize("model", [gpt2, llama])
def test_favor_is_blind_to_the_future(model):
    made, x = model(), tokens(1, 20)
    later = x.clone()
    later[:, 12:] = 1
    first, second = (answers(made, "kernattn_favor", each) for each in (x, later))
    torch.testing.assert_close(first[:, :12], second[:, :12], rtol=0, atol=0)
    assert not torch.equal(first[:, 12:], second[:, 12:])


def test_bert_sees_the_future():
    x = tokens(1, 20)
    later = x.clone()
    later[:, 12:] = 1
    made = bert()
    first, second = (answers(made, "kernattn_favor", each)[:, 0] for each in (x, later))
    assert not torch.equal(first, second)


def test_a_decoder_told_to_see_everything_does():
    made, x = llama(is_causal=False), tokens(2, 12)
    mask = padded(2, 12, 3)
    own, ours = (answers(made, name, x, attention_mask=mask)[mask.bool()] for name in ("eager", "kernattn"))
    torch.testing.assert_close(ours, own, rtol=0, atol=1e-6)


def test_heads_have_the_scale_that_the_model_says():
    made, x = gpt2(scale_attn_by_inverse_layer_idx=True, scale_attn_weights=False), tokens(2, 30)
    own, ours = (answers(made, name, x) for name in ("eager", "kernattn"))
    torch.testing.assert_close(ours, own, rtol=0, atol=1e-6)
    register(2048, rng=0)
    assert relative(answers(made, "kernattn_favor", x), own) < 0.02


def test_redraws_are_fresh_and_repeat():
    made, x = gpt2(), tokens(1, 20)
    favor = register(32, rng=3)
    first = answers(made, "kernattn_favor", x)
    favor.redraw()
    second = answers(made, "kernattn_favor", x)
    assert not torch.equal(first, second)
    again = register(32, rng=3)
    assert torch.equal(answers(made, "kernattn_favor", x), first)
    again.redraw()
    assert torch.equal(answers(made, "kernattn_favor", x), second)
    assert favor.draws == again.draws == 1


def test_layers_have_draws_of_their_own():
    favor = register(32, rng=0)
    assert favor.draw(0, 8, 1.0) is favor.draw(0, 8, 1.0)
    assert not np.array_equal(favor.draw(0, 8, 1.0).omega, favor.draw(1, 8, 1.0).omega)


def test_layers_without_an_index_have_draws_of_their_own(monkeypatch):
    """They are counted within their config: models of before, and copies of one model, change nothing."""
    drawn = []
    monkeypatch.setattr(Favor, "draw", lambda *args, of=Favor.draw: drawn.append(args[1]) or of(*args))
    image, made = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)), vit()
    first, second = (answers(each, "kernattn_favor", image) for each in (made, copy.deepcopy(made)))
    assert drawn == [0, 1, 2] * 2
    assert torch.equal(first, second)


def test_layers_without_an_index_stand_where_their_model_holds_them():
    """A second model of one config, whose layers were called in another order, has the draws of the first."""
    register(32, rng=0)
    first, image = vit(), torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    second = type(first)(first.config, add_pooling_layer=False).eval()
    assert second.config is first.config
    second.load_state_dict(first.state_dict())
    wanted = answers(first, "kernattn_favor", image)
    last = [each for each in second.modules() if type(each).__name__ == "ViTAttention"][-1]
    with torch.no_grad():
        last(torch.zeros(1, 5, 16))
    assert torch.equal(answers(second, "kernattn_favor", image), wanted)


def test_names_stand_apart():
    made, x = gpt2(), tokens(1, 20)
    register(16, rng=0, name="kernattn_few")
    few, many = (answers(made, name, x) for name in ("kernattn_few", "kernattn_favor"))
    assert not torch.equal(few, many)


@pytest.mark.parametrize("model", [gpt2, bert])
@pytest.mark.parametrize("attention", ["kernattn", "kernattn_favor"])
def test_bfloat16(model, attention):
    made, x = model(), tokens(2, 20)
    exact = answers(made, "eager", x)
    register(1024, rng=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = answers(made, attention, x)
    assert ours.dtype == torch.bfloat16 or model is bert
    assert relative(ours.float(), exact) < 0.05
    whole = answers(made.bfloat16(), attention, x)
    assert whole.dtype == torch.bfloat16
    assert relative(whole.float(), exact) < 0.05


def test_gradients_are_the_models_own():
    made, x = llama().train(), tokens(2, 20)
    found = []
    for attention in ("eager", "kernattn"):
        made.set_attn_implementation(attention)
        made.zero_grad()
        functional.cross_entropy(made(x).logits[:, :-1].flatten(0, 1), x[:, 1:].flatten()).backward()
        found.append([p.grad.clone() for p in made.parameters()])
    for own, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, own, rtol=1e-4, atol=1e-6)


def test_seeds():
    assert register(16).seed != register(16).seed
    with pytest.warns(DeprecationWarning, match="seed=.* is now rng="):
        assert register(16, seed=3).seed == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_features": 0}, "num_features must be a positive integer"),
        ({"estimator": "best"}, "estimator must be"),
        ({"projection": "best"}, "projection must be"),
        ({"rng": -1}, "rng must be None, a non-negative integer.* got -1"),
        ({"name": "sdpa"}, "name must begin with 'kernattn_'"),
        ({"name": None}, "name must begin with 'kernattn_'"),
        ({"estimator": "favor_sharp"}, "data"),
    ],
)
def test_arguments_are_checked(arguments, message):
    before = AttentionInterface()["kernattn_favor"]
    with pytest.raises(ParameterError, match=message):
        register(**arguments)
    assert AttentionInterface()["kernattn_favor"] is before


def test_a_loaded_model_has_the_features_that_it_was_saved_with(tmp_path):
    """Whatever register() was not told, and however often it redrew; what it was told must be the same."""
    favor, made, x = register(16, projection="iid", rng=7), gpt2(n_layer=1), tokens(1, 5)
    favor.redraw()
    wanted = answers(made, "kernattn_favor", x)
    made.save_pretrained(tmp_path)
    favor.redraw()
    redrawn = answers(made, "kernattn_favor", x)

    def load():
        return type(made).from_pretrained(tmp_path).eval()

    loaded = load()
    for settings in ({}, {"rng": 7}, {"num_features": 16, "projection": "iid"}):
        again = register(**settings)
        for model in (loaded, load(), pickle.loads(pickle.dumps(loaded))):
            assert torch.equal(answers(model, "kernattn_favor", x), wanted)
    again.redraw()
    assert torch.equal(answers(loaded, "kernattn_favor", x), redrawn)
    assert torch.equal(answers(load(), "kernattn_favor", x), wanted)
    assert loaded.config.kernattn["draws"] == 2

    for settings, message in (({"rng": 8}, "of rng=7,.* told rng=8"), ({"num_features": 8}, "of num_features=16,")):
        register(**settings)
        with pytest.raises(ParameterError, match=f"saved with attention by kernattn {message}"):
            answers(loaded, "kernattn_favor", x)
    loaded.config.kernattn = None
    answers(loaded, "kernattn_favor", x)
    assert loaded.config.kernattn["num_features"] == 8


@pytest.mark.parametrize("forged", [5, "x", [], True, {}, {"num_features": 16}])
def test_settings_that_a_file_spoilt(forged):
    made = gpt2(n_layer=1)
    made.config.kernattn = forged
    with pytest.raises(ParameterError, match="config must have num_features, estimator, projection, seed, draws"):
        answers(made, "kernattn_favor", tokens(1, 5))


def test_models_of_this_process_take_other_settings():
    made, x = gpt2(n_layer=1), tokens(1, 5)
    for m in (16, 8):
        register(m, rng=0)
        answers(copy.deepcopy(made), "kernattn_favor", x)
        answers(made, "kernattn_favor", x)
        assert made.config.kernattn["num_features"] == m
