"""Models whose gated layers run compiled loops, against their layers' recurrences token by token in float64."""

import sys
from functools import cache
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch
from torch.nn import functional

pytest.importorskip("numba")

from huggingface.gated_models import SIZES, cache_name, make, mamba2, module_of, padded, token_by_token, tokens
from huggingface.models import gpt2
from kernattn.errors import BackendUnavailable, DTypeError, ParameterError
from kernattn.huggingface import accelerate

FAMILIES = pytest.mark.parametrize("family", SIZES)
TOKENS, LENGTH = tokens(2, 23), 23
MASK = padded(2, LENGTH, 5)  # on the left of one sequence, on the right of the other
MASK[1, -4:] = 0
KEPT = MASK.bool()


@cache
def exact(family):
    """Logits of a model in float64, and gradients of its loss by name."""
    model = make(family).double()
    with token_by_token(model), torch.enable_grad():
        logits = model(TOKENS, attention_mask=MASK, use_cache=False).logits
        loss(logits).backward()
    return logits.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def loss(logits):
    seen = KEPT[:, :-1] & KEPT[:, 1:]
    return functional.cross_entropy(logits[:, :-1][seen], TOKENS[:, 1:][seen])


def near(found, wanted, tolerance=1e-5):
    assert float((found.detach() - wanted).abs().max()) <= tolerance * float(wanted.abs().max())


@FAMILIES
def test_logits_and_gradients_are_those_of_the_recurrence(family):
    model, (wanted, gradients) = make(family).train(), exact(family)
    with accelerate(model):
        logits = model(TOKENS, attention_mask=MASK, use_cache=False).logits
        loss(logits).backward()
    near(logits[KEPT], wanted[KEPT])
    found = dict(model.named_parameters())
    assert gradients.keys() == {name for name, p in found.items() if p.grad is not None}
    largest = max(float(g.abs().max()) for g in gradients.values())
    for name, g in gradients.items():
        assert float((found[name].grad - g).abs().max()) <= 1e-5 * largest, name


@FAMILIES
def test_text_with_a_cache_is_that_of_the_models_own_functions(family):
    model = make(family)
    settings = {"max_new_tokens": 20, "do_sample": False, "pad_token_id": 0}
    settings["attention_mask"] = padded(2, 11, 3)
    own = model.generate(TOKENS[:, :11], **settings)
    with accelerate(model):
        assert torch.equal(model.generate(TOKENS[:, :11], **settings), own)


@pytest.mark.parametrize("family", ["Qwen3Next", "Mamba2"])
def test_states_go_with_their_beams(family):
    """huggingface/transformers#46612: beams changed places, and their states did not."""
    model = make(family)
    settings = {"max_new_tokens": 6, "num_beams": 3, "do_sample": False, "pad_token_id": 0}
    own = model.generate(TOKENS[:, :5], **settings)
    with accelerate(model):
        assert torch.equal(model.generate(TOKENS[:, :5], **settings), own)


@FAMILIES
def test_parts_of_a_text_give_what_the_whole_gives(family):
    model = make(family)
    with accelerate(model), torch.no_grad():
        whole = model(TOKENS).logits
        name = cache_name(model.forward)
        cache, parts = model(TOKENS[:, :9], use_cache=True)[name], []
        for start, end in ((9, 10), (10, 11), (11, 16), (16, 17), (17, 23)):
            places = {} if family == "Mamba2" else {"position_ids": torch.arange(start, end)[None]}
            parts.append(model(TOKENS[:, start:end], use_cache=True, **{name: cache}, **places).logits)
    near(torch.cat(parts, 1), whole[:, 9:])


@pytest.mark.parametrize("family", ["Qwen3Next", "Mamba2", "MiniMax"])
def test_bfloat16(family):
    model = make(family).bfloat16()
    with torch.no_grad():
        wanted, own = exact(family)[0], model(TOKENS, attention_mask=MASK).logits
        with accelerate(model):
            ours = model(TOKENS, attention_mask=MASK).logits
    assert ours.dtype == own.dtype
    errors = [float((x.double() - wanted)[KEPT].norm()) for x in (ours, own)]
    assert errors[0] <= 1.2 * errors[1]


def test_a_scan_of_16_bits_is_rounded_no_sooner_than_the_models_own():
    module = module_of(make("Mamba2"))
    generator = torch.Generator().manual_seed(0)
    x, dt, B, C = (
        torch.randn(size, generator=generator).bfloat16()
        for size in ((1, 9, 4, 3), (1, 9, 4), (1, 9, 2, 5), (1, 9, 2, 5))
    )
    given = {"chunk_size": 16, "D": torch.ones(4).bfloat16(), "dt_softplus": True, "return_final_states": True}
    own = module.mamba2_chunk_scan(x, dt, -torch.ones(4), B, C, **given)
    with accelerate(make("Mamba2")):
        ours = module.mamba2_chunk_scan(x, dt, -torch.ones(4), B, C, **given)
    exact = mamba2(x, dt, -torch.ones(4), B, C, **given)
    for found, theirs, wanted in zip(ours, own, exact, strict=True):
        assert found.dtype == theirs.dtype == torch.float32
        near(found, wanted, 1e-6)


def test_a_family_has_its_own_functions_back():
    mamba, minimax = make("Mamba2"), make("MiniMax")
    module, layer = module_of(mamba), module_of(minimax).MiniMaxLightningAttention
    own, forward = dict(vars(module)), layer.forward
    handle = accelerate(mamba)
    assert len(handle.replaced) == 4
    assert not handle.left
    assert layer.forward is forward
    assert {name for name, x in vars(module).items() if x is not own[name]} == {
        "mamba2_chunk_scan", "mamba2_selective_state_update", "causal_conv1d_fn", "causal_conv1d_update",
    }  # fmt: skip
    once = dict(vars(module))
    again = accelerate(mamba.backbone.layers[0])
    assert again.replaced == handle.replaced
    assert vars(module) == once
    handle.undo()
    assert vars(module) == own
    again.undo()
    assert vars(module) == own
    with accelerate(minimax) as handle:
        assert layer.forward is not forward
        assert handle.replaced == (f"{layer.__module__}.MiniMaxLightningAttention.forward",)
    assert layer.forward is forward


def install(monkeypatch, *packages):
    for name in packages:
        module = ModuleType(name)
        module.__spec__, module.__file__ = ModuleSpec(name, None), f"{name}/__init__.py"
        monkeypatch.setitem(sys.modules, name, module)


def test_installed_packages_are_left_alone(monkeypatch):
    install(monkeypatch, "fla", "mamba_ssm")
    model = make("Qwen3Next")
    module = module_of(model)
    own = module.torch_chunk_gated_delta_rule
    with accelerate(model) as handle:
        assert module.torch_chunk_gated_delta_rule is own
        assert {name.split(".")[-1]: why for name, why in handle.left.items()} == dict.fromkeys(
            ["torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"], "the model runs the installed fla"
        )
        assert "torch_chunk_gated_delta_rule: the model runs the installed fla" in repr(handle)
        assert [name.split(".")[-1] for name in handle.replaced] == ["causal_conv1d_fn", "causal_conv1d_update"]
    install(monkeypatch, "causal_conv1d")
    with pytest.raises(
        ParameterError, match=r"Mamba2ForCausalLM is left alone: .*the installed causal_conv1d; .* mamba_ssm"
    ):
        accelerate(make("Mamba2"))


@pytest.mark.parametrize("folder", ["fla", "mamba_ssm"])
def test_folders_that_only_bear_a_packages_name_are_none(monkeypatch, tmp_path, folder):
    (tmp_path / folder).mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with accelerate(make("Qwen3Next" if folder == "fla" else "Mamba2")) as handle:
        assert not handle.left


def test_a_statement_within_another_leaves_what_that_replaced():
    model = make("Mamba2")
    module = module_of(model)
    own = dict(vars(module))
    with accelerate(model):
        once = dict(vars(module))
        with accelerate(model) as inner:
            assert len(inner.replaced) == 4
        assert vars(module) == once
        inner.undo()
        assert vars(module) == own
    assert vars(module) == own


def test_functions_with_arguments_that_nobody_here_knows_are_left_alone(monkeypatch):
    model = make("MiniMax")
    layer = module_of(model).MiniMaxLightningAttention

    def forward(self, hidden_states, store=None, **kwargs):
        raise NotImplementedError

    monkeypatch.setattr(layer, "forward", forward)
    with pytest.raises(ParameterError, match="it takes store, which kernattn does not know"):
        accelerate(model)


def test_what_cannot_be_helped_is_refused(monkeypatch):
    with pytest.raises(ParameterError, match="GPT2LMHeadModel has no layer that kernattn could run"):
        accelerate(gpt2())
    with pytest.raises(DTypeError, match="model must be a Module; got 'gpt2'"):
        accelerate("gpt2")
    monkeypatch.setattr("kernattn.huggingface._accelerate.missing", lambda _: "numba is not installed")
    with pytest.raises(BackendUnavailable, match="numba is not installed"):
        accelerate(make("Mamba2"))


def test_calls_that_loops_cannot_run_go_to_the_models_own_functions():
    model = make("Mamba2")
    with accelerate(model):
        assert model.to("meta")(TOKENS.to("meta")).logits.shape == (2, LENGTH, model.config.vocab_size)
    other = make("Mamba2", hidden_act="gelu")
    with torch.no_grad():
        own = other(TOKENS).logits
        with accelerate(other):
            near(other(TOKENS).logits, own)


@pytest.mark.parametrize("family", ["Qwen3Next", "KimiLinear", "Bamba", "MiniMax"])
def test_packed_texts_do_not_see_each_other(family):
    """A collator tells bounds of sequences, and can tell their numbers too."""
    model, lengths, bounds = make(family), (9, 14), torch.tensor([0, 9, 23], dtype=torch.int32)
    packed = {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": 14, "max_length_k": 14}
    packed["position_ids"] = torch.cat([torch.arange(n) for n in lengths])[None]
    ids = torch.repeat_interleave(torch.arange(2), torch.tensor(lengths))[None].int()
    with accelerate(model), torch.no_grad():
        alone = [model(part, use_cache=False).logits for part in TOKENS[:1].split(lengths, 1)]
        for more in ({}, {"seq_idx": ids}):
            near(model(TOKENS[:1], use_cache=False, **packed, **more).logits, torch.cat(alone, 1))
        if family in ("Bamba", "MiniMax"):
            given = {"seq_idx": ids, "position_ids": packed["position_ids"]}
            near(model(TOKENS[:1], use_cache=False, **given).logits, torch.cat(alone, 1))


def test_packed_texts_that_nobody_tells_a_rule_of_are_refused():
    model, ids = make("KimiLinear"), torch.repeat_interleave(torch.arange(2), torch.tensor([9, 14]))[None].int()
    with accelerate(model), pytest.raises(ValueError, match="can't keep packed sequences apart"):
        model(TOKENS[:1], use_cache=False, seq_idx=ids)


def test_graphs():
    model = make("Mamba2")
    with accelerate(model), torch.no_grad():
        wanted = model(TOKENS, attention_mask=MASK, use_cache=False).logits
        compiled = torch.compile(model, backend="aot_eager")
        near(compiled(TOKENS, attention_mask=MASK, use_cache=False).logits, wanted)
