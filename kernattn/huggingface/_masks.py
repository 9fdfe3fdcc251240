"""Masks as transformers makes them: which keys there are, one row for all queries, and never a matrix."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers.masking_utils import (
    and_masks,
    bidirectional_mask_function,
    causal_mask_function,
    packed_sequence_mask_function,
    sliding_window_bidirectional_overlay,
    sliding_window_overlay,
)

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

    Its form tells the kinds of attention apart: (batch, kv_length), or None for all, where it is causal, and
    (batch, 1, 1, kv_length) where every query sees every key. Within a window of w tokens on a side, their own
    included, it has an axis of w more before the keys, which takes no memory.
    """
    if torch.jit.is_tracing():
        refuse_scripts("a mask")
    window = None
    ids: Tensor | None = None
    if mask_function not in (causal_mask_function, bidirectional_mask_function):
        ids = _packed(mask_function)
        mask_function, window = _within(mask_function)
    if mask_function is None:
        raise ParameterError(_unserved(ids, attention_mask))
    causal, length = mask_function is causal_mask_function, kv_offset + kv_length
    tokens = q_offset + q_length if causal else length
    given = tokens if attention_mask is None else attention_mask.shape[1]
    if isinstance(tokens, Tensor) or given == tokens != length:
        raise ParameterError("the cache must grow with its tokens, as DynamicCache and StateCache do; got a static one")
    if attention_mask is not None:
        if attention_mask.ndim != 2:  # made by this function, before the model makes its own
            raise ParameterError(
                f"attention_mask must be (batch, l); got shape {tuple(attention_mask.shape)}, as generate makes it for "
                "a static cache: the cache must grow with its tokens, as DynamicCache and StateCache do"
            )
        check_length(attention_mask, tokens)
    kept = None if attention_mask is None else attention_mask[:, kv_offset:]
    if causal and not window and (kept is None or (not torch.compiler.is_compiling() and bool(kept.all()))):
        return None
    if kept is None:
        kept = torch.ones((batch_size, kv_length), dtype=torch.bool, device=device)
    if not causal:
        kept = kept[:, None, None]
    return kept[..., None, :].expand(*kept.shape[:-1], window, kept.shape[-1]) if window else kept


def _unserved(ids: Tensor | None, attention_mask: Tensor | None) -> str:
    """Return what to say of a pattern that no row of keys holds, and of packed sequences what to write instead."""
    if ids is not None:
        return (
            "kernattn serves no packed sequences: position_ids begin anew within a row and there is no attention_mask, "
            f"so that rows hold {_lengths(ids)} tokens; give each sequence a row of its own, padded, with "
            "attention_mask (batch, l), as a tokenizer's padding=True makes both (a row that is one sequence, whatever "
            "its positions: attention_mask of ones)"
        )
    return (
        "attention by kernattn must be causal or bidirectional, with a mask of padded tokens; this model asks for "
        "another pattern, such as chunks, packed sequences or, in a graph, a sliding window"
        + ", of which torch.compile cannot tell that there are none: give it an attention_mask"
        * (attention_mask is None and torch.compiler.is_compiling())
    )


_AND, _BACK, _AROUND, _PACKED = (
    made.__code__
    for made in (
        and_masks(causal_mask_function),
        sliding_window_overlay(1),
        sliding_window_bidirectional_overlay(1),
        packed_sequence_mask_function(torch.zeros(0)),
    )
)


def _packed(mask_function: Any) -> Tensor | None:
    """Return the numbers of the sequences that a function keeps apart; None of others."""
    if torch.compiler.is_dynamo_compiling():
        return None
    code = getattr(mask_function, "__code__", None)
    if code not in (_AND, _PACKED):
        return None
    held = mask_function.__closure__[0].cell_contents
    if code is _PACKED:
        return held if isinstance(held, Tensor) else None
    return next((ids for each in held if (ids := _packed(each)) is not None), None)


def _lengths(ids: Tensor) -> str:
    """Return how long the sequences are: of the first row that holds several."""
    row = next((row for row in ids if row[0] != row[-1]), ids[0])
    lengths = torch.unique_consecutive(row, return_counts=True)[1].tolist()
    return " + ".join(map(str, lengths[:8])) + " + ..." * (len(lengths) > 8)


def _within(mask_function: Any) -> tuple[Any, int | None]:
    """Return which of the two kinds of attention a function cuts to a window, and the window; None of others."""
    if torch.compiler.is_dynamo_compiling() or getattr(mask_function, "__code__", None) is not _AND:
        return None, None
    parts = mask_function.__closure__[0].cell_contents
    if len(parts) != 2 or parts[1] not in (causal_mask_function, bidirectional_mask_function):
        return None, None
    causal = parts[1] is causal_mask_function
    if getattr(parts[0], "__code__", None) is not (_BACK if causal else _AROUND):
        return None, None
    return parts[1], parts[0].__closure__[0].cell_contents + (not causal)


def check_length(mask: Tensor, tokens: int) -> None:
    """Raise unless a mask is one of so many tokens."""
    if mask.shape[-1] != tokens:
        raise ParameterError(
            f"attention_mask must have an entry for each of the {tokens} tokens so far; got shape {tuple(mask.shape)}"
        )


class Read(NamedTuple):
    """The mask (batch, l) that a model hands to its attention, whether all queries see alike, and within what."""

    kept: Tensor | None
    alike: bool
    window: int | None


def read_key_mask(mask: Tensor | None) -> Read:
    """Return what a mask says."""
    if mask is None:
        return Read(None, False, None)
    if mask.dtype == torch.bool and mask.ndim == 2:
        return Read(mask, False, None)
    if mask.dtype == torch.bool and mask.ndim == 4 and mask.shape[1] == mask.shape[2] == 1:
        return Read(mask[:, 0, 0], True, None)
    if mask.dtype == torch.bool and mask.ndim == 3 and 0 in (mask.stride(1), mask.shape[1] - 1):
        return Read(mask[:, 0], False, mask.shape[1])
    if mask.dtype == torch.bool and mask.ndim == 5 and mask.shape[1:3] == (1, 1) and mask.stride(3) == 0:
        return Read(mask[:, 0, 0, 0], True, mask.shape[3])
    raise ParameterError(
        "attention_mask must be (batch, l), True or 1 for tokens, which kernattn combines with causal attention "
        f"itself; got a mask of shape {tuple(mask.shape)} and {mask.dtype}"
    )
