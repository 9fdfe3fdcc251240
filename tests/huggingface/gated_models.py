"""Small models with gated layers, random weights, and the recurrences of their layers token by token in float64."""

from contextlib import ExitStack, contextmanager
from inspect import signature
from unittest import mock

import torch
import transformers
from torch.nn.functional import silu, softplus

from huggingface.models import SMALL, WORDS, padded, tokens

HYBRID = {"num_hidden_layers": 3, "hidden_size": 32, "intermediate_size": 16, "num_attention_heads": 2}
HYBRID |= {"initializer_range": 0.1}
KINDS = {"layer_types": ["linear_attention", "linear_attention", "full_attention"]}
EXPERTS = {"num_experts_per_tok": 1, "moe_intermediate_size": 16}
DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 6}
LATENT = {"kv_lora_rank": 8, "q_lora_rank": None, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8}
SSM = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 2, "mamba_d_state": 16, "mamba_chunk_size": 16}

SIZES = {
    "Qwen3Next": HYBRID | KINDS | EXPERTS | DELTA
    | {"num_key_value_heads": 1, "head_dim": 16, "num_experts": 2, "shared_expert_intermediate_size": 16},
    "Qwen3_5": HYBRID | KINDS | DELTA | {"num_key_value_heads": 1, "head_dim": 16},
    "OlmoHybrid": HYBRID | KINDS | DELTA | {"num_key_value_heads": 1},
    "KimiLinear": HYBRID | KINDS | EXPERTS | LATENT
    | {"linear_num_heads": 2, "linear_head_dim": 8, "num_local_experts": 2, "n_group": 1, "topk_group": 1},
    "Mamba2": {"num_hidden_layers": 2, "hidden_size": 32, "num_heads": 8, "head_dim": 8, "state_size": 16}
    | {"n_groups": 2, "chunk_size": 16, "initializer_range": 0.1},
    "Bamba": HYBRID | SSM | {"num_key_value_heads": 1, "attn_layer_indices": [1]},
    "FalconH1": HYBRID | SSM | {"num_key_value_heads": 1, "mamba_d_ssm": 64},
    "MiniMax": HYBRID | {"num_key_value_heads": 1, "head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1}
    | {"block_size": 16},
}  # fmt: skip


def make(family, seed=1, **changes):
    """A model of a family, with weights that let states count."""
    torch.manual_seed(seed)
    own = f"{family}TextConfig" if family == "Qwen3_5" else f"{family}Config"
    config = getattr(transformers, own)(**SMALL | SIZES[family] | changes)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    model.set_experts_implementation("eager")  # the others know no float64
    return model


def cache_name(forward):
    """The name under which a method takes a cache: `cache` from transformers 5.24 on."""
    return next(name for name in ("cache", "cache_params", "past_key_values") if name in signature(forward).parameters)


def module_of(model):
    """The module that its layers stand in."""
    return __import__(type(model).__module__, fromlist=["_"])


def delta(q, k, v, g, beta, initial_state=None, output_final_state=False, **_):
    """S <- e^g S; S <- S + k beta (v - S^T k)^T; o = S^T q / sqrt(d), of keys and queries of norm 1."""
    q, k, v, g, beta = (x.double() for x in (q, k, v, g, beta))
    q, k = (x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt() for x in (q, k))
    q, k = (x.repeat_interleave(v.shape[2] // x.shape[2], dim=2) for x in (q, k))
    decay = (g if g.ndim == 4 else g[..., None]).exp()
    s = v.new_zeros(*k.shape[:1], *k.shape[2:], v.shape[3]) if initial_state is None else initial_state.double()
    out = []
    for t in range(q.shape[1]):
        s = decay[:, t, :, :, None] * s
        wrong = v[:, t] - torch.einsum("bhde,bhd->bhe", s, k[:, t])
        s = s + k[:, t, :, :, None] * (beta[:, t, :, None] * wrong)[..., None, :]
        out.append(torch.einsum("bhde,bhd->bhe", s, q[:, t]) / q.shape[3] ** 0.5)
    return torch.stack(out, 1), s if output_final_state else None


def mamba2(
    x, dt, A, B, C, chunk_size=None, D=None, z=None, dt_bias=None, initial_states=None, dt_softplus=False,
    dt_limit=(0.0, float("inf")), return_final_states=False, **_,
):  # fmt: skip
    """S <- e^{dt A} S + dt x B^T; y = S C + D x."""
    x, dt, A, B, C = (each.double() for each in (x, dt, A, B, C))
    B, C = (each.repeat_interleave(x.shape[2] // each.shape[2], dim=2) for each in (B, C))
    if dt_bias is not None:
        dt = dt + dt_bias
    dt = (softplus(dt) if dt_softplus else dt).clamp(*dt_limit)
    s = x.new_zeros(x.shape[0], *x.shape[2:], B.shape[3]) if initial_states is None else initial_states.double()
    out = []
    for t in range(x.shape[1]):
        s = (dt[:, t] * A).exp()[..., None, None] * s + (dt[:, t, :, None] * x[:, t])[..., None] * B[:, t, :, None]
        out.append(torch.einsum("bhpn,bhn->bhp", s, C[:, t]))
    y = torch.stack(out, 1)
    if D is not None:
        y = y + D.reshape(x.shape[2], -1) * x
    y = y if z is None else y * silu(z)
    return (y, s) if return_final_states else y


class Empty:
    """A cache that makes MiniMax's layer go token by token, from a state of zeros."""

    def __init__(self, layer):
        self.state = torch.zeros(1, layer.num_attention_heads, layer.head_dim, layer.head_dim, dtype=torch.float64)

    def get_linear_cache(self, _):
        return self.state

    def set_linear_cache(self, *_):
        pass


@contextmanager
def token_by_token(model):
    """Let the layers of a model in float64 run their recurrences as they are written."""
    module = module_of(model)
    own = {name: delta for name in vars(module) if name.endswith(("_gated_delta_rule", "_delta_attention"))}
    own |= {"mamba2_chunk_scan": mamba2} if hasattr(module, "mamba2_chunk_scan") else {}
    if hasattr(module, "MiniMaxLightningAttention"):
        own["MiniMaxLightningAttention.forward"] = _alone(module.MiniMaxLightningAttention.forward)
    with ExitStack() as patches:
        for name, function in own.items():
            patches.enter_context(mock.patch(f"{module.__name__}.{name}", function))
        yield


def _alone(forward):
    def alone(self, **given):
        return forward(self, **given | {cache_name(forward): Empty(self)})

    return alone


__all__ = ["SIZES", "WORDS", "cache_name", "delta", "make", "mamba2", "module_of", "padded", "token_by_token", "tokens"]
