"""What a model of transformers hands to its attention, as kernattn takes it."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache
from transformers.utils import output_capturing

from kernattn._arrays.namespaces import refuse_scripts
from kernattn._runtime.checks import positive_integer, shown
from kernattn.errors import ParameterError
from kernattn.huggingface._masks import check_length, read_key_mask
from kernattn.huggingface._packed import refuse_positions_of_packed
from kernattn.torch._heads import group_heads

PACKED = (
    "attention of packed sequences (give each sequence a row of its own, padded, with attention_mask (batch, l), as a "
    "collator that pads makes both)"
)
UNKNOWN = {
    "softcap": "soft caps on scores",
    "position_bias": "biases of positions",
    "s_aux": "attention sinks by features (exact attention, 'kernattn', has them)",
    "head_mask": "masks of heads",
    "cache": "paged caches",
    "cu_seq_lens_q": PACKED,
    "cu_seq_lens_k": PACKED,
}


_COLLECTOR = getattr(output_capturing, "_active_collector", None)
"""Where transformers notes what it records of a model's layers: GPT-2, BERT and ViT tell attention nothing of it."""


class Call(NamedTuple):
    """One call of attention, grouped: q (..., n, d), k (..., l, d), v (..., l, e) and key_mask (..., l)."""

    q: Tensor
    k: Tensor
    v: Tensor
    key_mask: Tensor | None
    causal: bool
    scale: float
    window: int | None  # tokens that a query sees on a side, its own included
    sinks: Tensor | None  # (heads,), the score of a key of each head whose value is 0


def read_call(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    sliding_window: int | None = None,
    *,
    exact: bool = False,
    **others: Any,
) -> Call:
    """Return the call, or raise where it asks for what linear and exact attention of kernattn do not do."""
    sinks = others.pop("s_aux", None) if exact else None
    if torch.jit.is_tracing():
        refuse_scripts("the query")
    if isinstance(others.get("cache"), Cache):
        raise ParameterError(
            "this version of transformers takes a cache as past_key_values, and did not use what it got as cache; got "
            f"a {type(others['cache']).__name__}: give it as past_key_values"
        )
    for name, what in UNKNOWN.items():
        if others.get(name) is not None:
            raise ParameterError(f"{name} must be None: kernattn has no {what}; got it from {type(module).__name__}")
    if others.get("output_attentions") or _weights_are_recorded():
        raise ParameterError("output_attentions must be False: kernattn forms no matrix of attention; got True")
    if dropout:
        raise ParameterError(
            f"dropout of attention must be 0: no weights are formed that could be dropped; got {dropout} from "
            f"{type(module).__name__} (layers keep the dropout that they were built with: "
            "load or make the model with attn_pdrop=0.0, attention_dropout=0.0 or whatever its config calls it)"
        )
    kept, alike, window = read_key_mask(attention_mask)
    if sliding_window is not None:
        sliding_window = positive_integer("sliding_window", sliding_window)
        if window not in (None, sliding_window):
            raise ParameterError(
                f"sliding_window must be that of the mask; got {sliding_window} from {type(module).__name__} beside "
                f"{window}"
            )
        window = sliding_window
    if window is not None and not exact:
        raise ParameterError(
            f"sliding_window must be None: features have no window; got {window} from {type(module).__name__} (exact "
            "attention, 'kernattn', has one)"
        )
    if torch.is_autocast_enabled(query.device.type):
        low = torch.get_autocast_dtype(query.device.type)
        query, key, value = (x if x.dtype == torch.float64 else x.to(low) for x in (query, key, value))
    if kept is not None and alike:
        check_length(kept, key.shape[2])
    elif kept is not None:
        kept = kept[:, -key.shape[2] :]
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    if is_causal and not alike:
        refuse_positions_of_packed(others.get("position_ids"), kept)
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    heads = (query.shape[1],)
    if sinks is not None and (not isinstance(sinks, Tensor) or tuple(sinks.shape) != heads):
        given = f"shape {tuple(sinks.shape)}" if isinstance(sinks, Tensor) else shown(sinks)
        raise ParameterError(f"s_aux must be None, or a tensor {heads} of the sinks of heads; got {given}")
    grouped, causal = group_heads(query, key, value, kept), is_causal and not alike
    return Call(*grouped, causal=causal, scale=scale, window=window, sinks=sinks)


def _weights_are_recorded() -> bool:
    recorded = None if _COLLECTOR is None or torch.compiler.is_dynamo_compiling() else _COLLECTOR.get()
    return recorded is not None and any("attentions" in name for name in recorded)
