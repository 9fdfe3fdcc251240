"""Models in graphs: `torch.compile` takes them whole, where it is told which tokens there are."""

import copy

import pytest
import torch
from torch._dynamo.backends.debugging import aot_eager

from huggingface.models import answers, gpt2, llama, tokens, vit
from kernattn.huggingface import register


@pytest.fixture
def compiled():
    """A tiny GPT-2 of one layer, as it is and compiled, tokens, and their mask."""
    torch.compiler.reset()
    model = gpt2(0, n_layer=1, n_positions=64, vocab_size=16)
    x = torch.randint(16, (2, 24), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(x)
    mask[0, :3] = 0
    return model, torch.compile(model, backend="aot_eager", fullgraph=True), x, mask


def logits(model, x, mask):
    return model(x, attention_mask=mask, use_cache=False).logits[mask.bool()]


@pytest.mark.parametrize("attention", ["kernattn_favor", pytest.param("kernattn", marks=pytest.mark.slow)])
def test_a_compiled_model_is_the_model(compiled, attention):
    model, graph, x, mask = compiled
    favor = register(64, rng=0)
    model.set_attn_implementation(attention)
    for n in (24, 20):
        wanted, found = (logits(each, x[:, :n], mask[:, :n]) for each in (model, graph))
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
        weights = list(model.parameters())
        of_found, of_wanted = (torch.autograd.grad(y.square().sum(), weights) for y in (found, wanted))
        for y, z in zip(of_found, of_wanted, strict=True):
            torch.testing.assert_close(y, z, rtol=1e-4, atol=1e-5)
    favor.redraw()
    torch.testing.assert_close(logits(graph, x, mask), logits(model, x, mask), rtol=1e-5, atol=1e-6)


def test_layers_share_a_graph():
    """A draw is an input of the graph, so layers and redraws have one; each attention has draws of its own."""
    torch.compiler.reset()
    graphs = []
    model, x = llama(num_hidden_layers=3), tokens(2, 12)
    plain, inputs = copy.deepcopy(model), {"attention_mask": torch.ones_like(x), "use_cache": False}
    first, _ = (register(16, rng=seed, name=f"kernattn_of_{seed}") for seed in (1, 2))

    def backend(graph, example_inputs):
        graphs.append(graph)
        return aot_eager(graph, example_inputs)

    for layer in model.model.layers:
        layer.compile(backend=backend, fullgraph=True)
    for seed, number in ((1, 1), (2, 2), (1, 2)):
        found, wanted = (answers(each, f"kernattn_of_{seed}", x, **inputs) for each in (model, plain))
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
        assert len(graphs) == number
        first.redraw()
        assert model.config.kernattn["draws"] == (seed == number == 1)  # of the attention that was traced last


def test_layers_without_an_index_are_counted_in_a_graph():
    torch.compiler.reset()
    register(16, rng=0)
    model, image = vit(), torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    model.set_attn_implementation("kernattn_favor")
    with torch.no_grad():
        found = torch.compile(model, backend="aot_eager", fullgraph=True)(image)[0]
        torch.testing.assert_close(found, copy.deepcopy(model)(image)[0], rtol=1e-5, atol=1e-6)


def test_a_graph_must_be_told_which_tokens_there_are(compiled):
    model, graph, x, _ = compiled
    register(64, rng=0)
    model.set_attn_implementation("kernattn_favor")
    with pytest.raises(torch._dynamo.exc.Unsupported, match="give it an attention_mask"):
        graph(x, use_cache=False)
