r"""Functions of flash-linear-attention by their names and signatures (release 0.5.2), for tensors on any device.

They are names for `kernattn.gated_linear_attention`: tensors are (B, T, H, channels), tokens before heads, and gates
are natural logarithms of decays, at most 0. An argument that would change the result and that is not supported raises
an error by its name. Gradients flow to every tensor. Chunked and recurrent names run the same loops.
"""

from kernattn.torch.fla._delta import (
    chunk_delta_rule,
    chunk_gated_delta_rule,
    chunk_kda,
    fused_recurrent_delta_rule,
    fused_recurrent_gated_delta_rule,
    fused_recurrent_kda,
)

__all__ = [
    "chunk_delta_rule", "chunk_gated_delta_rule", "chunk_kda", "fused_recurrent_delta_rule",
    "fused_recurrent_gated_delta_rule", "fused_recurrent_kda",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
