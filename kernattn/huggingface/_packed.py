"""Packed sequences, as transformers' collators describe them."""

from typing import Any

import torch
from torch import Tensor


def segments(bounds: Tensor | None) -> Tensor | None:
    """Return the number of the sequence of each token, (1, n), of where sequences begin and end."""
    if bounds is None:
        return None
    lengths = bounds.diff().long()
    return torch.repeat_interleave(torch.arange(len(lengths), device=bounds.device), lengths)[None]


def named_arguments(named: set[str], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the keywords that a function has a name for; None where sequences are packed and it has none for that."""
    given = {name: value for name, value in kwargs.items() if name in named}
    bounds = kwargs.get("cu_seqlens")
    bounds = kwargs.get("cu_seq_lens_q") if bounds is None else bounds
    if bounds is not None and "cu_seqlens" in named:
        return given | {"cu_seqlens": bounds}
    if "seq_idx" in named:
        return given | ({"seq_idx": segments(bounds)} if given.get("seq_idx") is None else {})
    return given if kwargs.get("seq_idx") is None else None
