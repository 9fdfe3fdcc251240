r"""Functions of flash-linear-attention by their names and signatures (release 0.5.2), for tensors on any device.

They are names for `kernattn.gated_linear_attention`: tensors are (B, T, H, channels), tokens before heads, and gates
are natural logarithms of decays, at most 0. An argument that would change the result and that is not supported raises
an error by its name. Gradients flow to every tensor. Chunked and recurrent names run the same loops. Mamba-2's scan
and step, and short convolutions, have the names that mamba_ssm and causal_conv1d give them.
"""

from kernattn.torch.fla._conv import causal_conv1d_fn, causal_conv1d_update
from kernattn.torch.fla._decays import (
    chunk_gla,
    chunk_lightning_attn,
    chunk_retention,
    chunk_simple_gla,
    fused_recurrent_gla,
    fused_recurrent_lightning_attn,
    fused_recurrent_retention,
    fused_recurrent_simple_gla,
)
from kernattn.torch.fla._delta import (
    chunk_delta_rule,
    chunk_gated_delta_rule,
    chunk_kda,
    fused_recurrent_delta_rule,
    fused_recurrent_gated_delta_rule,
    fused_recurrent_kda,
)
from kernattn.torch.fla._mamba import mamba_chunk_scan_combined, selective_state_update
from kernattn.torch.fla._rwkv import (
    chunk_rwkv6,
    chunk_rwkv7,
    fused_mul_recurrent_rwkv7,
    fused_recurrent_rwkv6,
    fused_recurrent_rwkv7,
)

__all__ = [
    "causal_conv1d_fn",
    "causal_conv1d_update",
    "chunk_delta_rule",
    "chunk_gated_delta_rule",
    "chunk_gla",
    "chunk_kda",
    "chunk_lightning_attn",
    "chunk_retention",
    "chunk_rwkv6",
    "chunk_rwkv7",
    "chunk_simple_gla",
    "fused_mul_recurrent_rwkv7",
    "fused_recurrent_delta_rule",
    "fused_recurrent_gated_delta_rule",
    "fused_recurrent_gla",
    "fused_recurrent_kda",
    "fused_recurrent_lightning_attn",
    "fused_recurrent_retention",
    "fused_recurrent_rwkv6",
    "fused_recurrent_rwkv7",
    "fused_recurrent_simple_gla",
    "mamba_chunk_scan_combined",
    "selective_state_update",
]


def __dir__() -> list[str]:
    return __all__
