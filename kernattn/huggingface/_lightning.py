"""Lightning attention of MiniMax's layers, whose own loop stands within their method."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernattn._arrays.namespaces import accumulation_dtype
from kernattn.attention import GatedState, gated_linear_attention


def forward(
    layer: Any,
    hidden_states: Tensor,
    position_embeddings: Any = None,
    attention_mask: Tensor | None = None,
    past_key_values: Any = None,
    cache: Any = None,
    seq_idx: Tensor | None = None,
    **_: Any,
) -> tuple[Tensor, Tensor]:
    """Return a layer's output and the state after it, which the cache keeps in the dtype in which sums run."""
    mixed = layer.act_fn(layer.qkv_proj(hidden_states))
    if attention_mask is not None:
        mixed = (mixed * attention_mask[:, :, None]).to(mixed.dtype)
    heads = mixed.unflatten(-1, (layer.num_attention_heads, -1)).transpose(1, 2)
    q, k, v = heads.split(layer.head_dim, dim=-1)
    wide = accumulation_dtype(torch, v)
    cache = past_key_values if cache is None else cache  # its name until transformers 5.24
    before = None if cache is None else cache.get_linear_cache(layer.layer_idx)
    state = None if before is None else GatedState(before.to(wide))
    g, ids = -layer.slope_rate[..., 0].to(wide), None if seq_idx is None else seq_idx[:, None]
    out, (after,) = gated_linear_attention(q, k, v, g=g, scale=1.0, state=state, segment_ids=ids)
    if cache is not None:
        cache.set_linear_cache(layer.layer_idx, after)
    read = layer.norm(out.transpose(1, 2).flatten(2))
    return layer.out_proj(torch.sigmoid(layer.output_gate(hidden_states)) * read), after
