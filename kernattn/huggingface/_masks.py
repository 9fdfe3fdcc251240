"""Masks as transformers makes them: which keys there are, one row for all queries, and never a matrix."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function

from kernattn._arrays.namespaces import refuse_scripts
from kernattn.errors import ParameterError


def make_key_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: Tensor | None = None,
    device: torch.device | str = "cpu",
    **_: Any,
) -> Tensor | None:
    """Return the keys that a model's attention sees, True where there is one, or raise where no such row says it.

    Its form tells the two kinds of attention apart: (batch, kv_length), or None for all, where it is causal, and
    (batch, 1, 1, kv_length) where every query sees every key.
    """
    if torch.jit.is_tracing():
        refuse_scripts("a mask")
    if mask_function not in (causal_mask_function, bidirectional_mask_function):
        raise ParameterError(
            "attention by kernattn must be causal or bidirectional, with a mask of padded tokens; this model asks for "
            "another pattern, such as a sliding window, chunks or packed sequences"
            + ", of which torch.compile cannot tell that there are none: give it an attention_mask"
            * (attention_mask is None and torch.compiler.is_compiling())
        )
    causal, length = mask_function is causal_mask_function, kv_offset + kv_length
    tokens = q_offset + q_length if causal else length
    given = tokens if attention_mask is None else attention_mask.shape[1]
    if isinstance(tokens, Tensor) or given == tokens != length:
        raise ParameterError("the cache must grow with its tokens, as DynamicCache and StateCache do; got a static one")
    if attention_mask is not None:
        check_length(attention_mask, tokens)
    kept = None if attention_mask is None else attention_mask[:, kv_offset:]
    if not causal:
        if kept is None:
            kept = torch.ones((batch_size, kv_length), dtype=torch.bool, device=device)
        return kept[:, None, None]
    if kept is None or (not torch.compiler.is_compiling() and bool(kept.all())):
        return None
    return kept


def check_length(mask: Tensor, tokens: int) -> None:
    """Raise unless a mask is one of so many tokens."""
    if mask.shape[-1] != tokens:
        raise ParameterError(
            f"attention_mask must have an entry for each of the {tokens} tokens so far; got shape {tuple(mask.shape)}"
        )


def read_key_mask(mask: Tensor | None) -> tuple[Tensor | None, bool]:
    """Return the mask (batch, l) that a model hands to its attention, and whether it is one of all queries alike."""
    if mask is None:
        return None, False
    if mask.dtype == torch.bool and mask.ndim == 2:
        return mask, False
    if mask.dtype == torch.bool and mask.ndim == 4 and mask.shape[1] == mask.shape[2] == 1:
        return mask[:, 0, 0], True
    raise ParameterError(
        "attention_mask must be (batch, l), True or 1 for tokens, which kernattn combines with causal attention "
        f"itself; got a mask of shape {tuple(mask.shape)} and {mask.dtype}"
    )
