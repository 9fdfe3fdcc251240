"""Layers of gpt-oss: windows, and sinks that take a share of each row's weights."""

import pytest
import torch
from transformers import GptOssConfig, GptOssForCausalLM

from huggingface.models import SMALL, answers, padded, tokens
from kernattn.errors import ParameterError
from kernattn.huggingface import register
from kernattn.huggingface._attention import exact_attention

register(16, rng=0)


@pytest.fixture(scope="module")
def gpt_oss():
    """A layer with a window and one without; a group of two queries to a key."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"head_dim": 4, "intermediate_size": 8, "num_local_experts": 2, "num_experts_per_tok": 1}
    torch.manual_seed(7)
    made = GptOssForCausalLM(GptOssConfig(**SMALL | sizes, sliding_window=4)).eval()
    for layer in made.model.layers:
        torch.nn.init.normal_(layer.self_attn.sinks, std=2.0)
    return made


@pytest.mark.parametrize("left", [None, 5])
def test_a_model_with_sinks(gpt_oss, left):
    x, mask = tokens(2, 13), None if left is None else padded(2, 13, left)
    own, ours = (answers(gpt_oss, name, x, attention_mask=mask) for name in ("eager", "kernattn"))
    kept = slice(None) if mask is None else mask.bool()
    torch.testing.assert_close(ours[kept], own[kept], rtol=0, atol=1e-6)
    gpt_oss.set_attn_implementation("kernattn_favor")
    with pytest.raises(ParameterError, match="s_aux must be None: kernattn has no attention sinks by features"):
        gpt_oss(x)


def test_sinks_learn():
    made = torch.Generator().manual_seed(0)
    q, k, v = torch.randn(3, 2, 4, 6, 3, generator=made, dtype=torch.float64)
    sinks = torch.randn(4, generator=made, dtype=torch.float64)
    module = torch.nn.Module()

    def by_a_key(sinks):
        """Of one key more, which every row sees."""
        scores = (q @ k.mT) * 3**-0.5 + torch.full((6, 6), -torch.inf, dtype=torch.float64).triu(1)
        weights = torch.cat([scores, sinks[:, None, None].expand(2, 4, 6, 1)], dim=-1).softmax(-1)
        return (weights[..., :-1] @ v).transpose(1, 2)

    slopes = []
    for function in (by_a_key, lambda s: exact_attention(module, q, k, v, None, s_aux=s)[0]):
        given = sinks.clone().requires_grad_()
        out = function(given)
        slopes += [out.detach(), *torch.autograd.grad(out.sin().sum(), given)]
    torch.testing.assert_close(slopes[:2], slopes[2:])
    with pytest.raises(ParameterError, match=r"s_aux must be None, or a tensor \(4,\) of the sinks.*got shape \(2,\)"):
        exact_attention(module, q, k, v, None, s_aux=sinks[:2])
