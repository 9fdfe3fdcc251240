"""Attention of models of transformers, fitted, swapped, put back, saved and loaded."""

import copy

import pytest
import torch

from huggingface.models import bert, gpt2, llama, padded, tokens
from kernattn.errors import ParameterError
from kernattn.features._fitted import learn
from kernattn.huggingface import StateCache, load_transfer, transfer

FEW = {"num_features": 8, "sequences": 4, "rng": 0}
pytestmark = pytest.mark.filterwarnings("ignore:a fit was no better")  # few steps and few rows


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch):
    monkeypatch.setattr(learn, "STEPS", 60)


def sharp(make):
    """A model whose attention is not uniform: its queries are larger."""
    model = make()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("q_proj.weight", "query.weight")):
                weight *= 8
            elif name.endswith("c_attn.weight"):
                weight[:, :32] *= 8
    return model


def said(model, x, **inputs):
    with torch.no_grad():
        return model(x, **inputs)[0]


@pytest.mark.parametrize(("make", "window"), [(gpt2, 4), (llama, 0), (bert, 0)])
def test_a_model_is_swapped_and_put_back(make, window):
    model, x, mask = sharp(make), tokens(4, 20), padded(4, 20, 5)
    model.train()
    own, implementation = said(copy.deepcopy(model).eval(), x), model.config._attn_implementation
    swap = transfer(model, [{"input_ids": x, "attention_mask": mask}], window=window, **FEW)
    assert all(each.training for each in model.modules())
    model.eval()
    ours = said(model, x)
    scale = float((own - own.mean()).norm())
    assert 0 < float((ours - own).norm()) < 0.1 * scale
    torch.testing.assert_close(said(copy.deepcopy(model), x), ours, rtol=0, atol=0)
    other = torch.where(mask.bool(), x, torch.flip(x, (1,)))  # padded tokens change nothing
    first, second = (said(model, each, attention_mask=mask)[mask.bool()] for each in (x, other))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    loss = model(x)[0].square().mean()
    loss.backward()
    grads = [p.grad for name, p in model.named_parameters() if "q_proj" in name or "query" in name or "c_attn" in name]
    assert all(float(g.abs().sum()) > 0 for g in grads)
    swap.undo()
    swap.undo()
    assert model.config._attn_implementation == implementation
    assert not any(hasattr(model.config, name) for name in ("kernattn_transfer", "attn_implementation"))
    assert torch.equal(said(model, x), own)


def test_text_is_generated_by_a_state():
    model, x = sharp(llama), tokens(4, 20)
    settings = {"attention_mask": padded(4, 20, 3), "do_sample": False, "pad_token_id": 0, "max_new_tokens": 6}
    with transfer(model, [x], **FEW):
        cache = StateCache()
        written = model.generate(x, past_key_values=cache, **settings)
        size = cache.nbytes
        assert torch.equal(written, model.generate(x, use_cache=False, **settings))
        assert torch.equal(written, model.generate(x, **settings))  # a cache that grows
        cache = StateCache()
        model.generate(x, past_key_values=cache, **settings | {"max_new_tokens": 2})
        assert cache.nbytes == size


def test_a_saved_model_goes_with_its_maps(tmp_path):
    model, x = sharp(gpt2), tokens(4, 20)
    swap = transfer(model, [x], folder=tmp_path / "maps", **FEW)
    ours = said(model, x)
    model.save_pretrained(tmp_path / "model")
    other = transfer(sharp(gpt2), [x], **FEW | {"rng": 1})
    other.save(tmp_path / "others")
    again = type(model).from_pretrained(tmp_path / "model").eval()
    with pytest.raises(ParameterError, match="call load_transfer with the maps that were saved"):
        said(again, x)
    with pytest.raises(ParameterError, match="the transfer with which the model was saved"):
        load_transfer(again, tmp_path / "others")
    loaded = load_transfer(again, tmp_path / "maps")
    assert loaded.transfer.fingerprint == swap.transfer.fingerprint
    torch.testing.assert_close(said(again, x), ours, rtol=0, atol=0)
    loaded.undo()
    plain = type(model).from_pretrained(tmp_path / "model", attn_implementation="sdpa").eval()
    swap.undo()
    for each in (again, plain):
        torch.testing.assert_close(said(each, x), said(model, x), rtol=1e-6, atol=1e-6)
    with pytest.raises(ParameterError, match="which has no attention transformer"):
        load_transfer(llama(), tmp_path / "maps")


def test_what_cannot_be_is_named():
    class Own(torch.nn.Module):
        def forward(self, x):
            return x

    with pytest.raises(ParameterError, match="must be a model of transformers; got Own"):
        transfer(Own(), [])
    with pytest.raises(ParameterError, match="a tensor, a tuple or a mapping of them; got 3"):
        transfer(gpt2(), [3], **FEW)
    with pytest.raises(ParameterError, match="no layer of GPT2LMHeadModel asked"):
        transfer(gpt2(), [], **FEW)
    with pytest.raises(ParameterError, match="attends to all tokens"):
        transfer(bert(), [tokens(4, 20)], window=2, **FEW)
