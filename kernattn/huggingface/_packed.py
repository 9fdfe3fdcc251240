"""Packed sequences, as transformers' collators describe them."""

from typing import Any

import torch
from torch import Tensor

from kernattn.errors import ParameterError


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


def refuse_positions_of_packed(positions: Any, kept: Tensor | None) -> None:
    """Raise where positions go back to 0 within a row, between two tokens that are there.

    transformers looks for packed sequences only without a mask and without a cache, which a model makes by itself.
    """
    known = isinstance(positions, Tensor) and positions.ndim == 2 and not torch.compiler.is_compiling()
    if not known or positions.shape[1] < 2:
        return
    again = (positions[:, 1:] == 0) & (positions[:, :-1] > 0)
    if kept is not None:
        there = kept[:, -positions.shape[1] :].bool()
        again = again & there[:, 1:] & there[:, :-1]
    if bool(again.any()):
        row, token = (int(at) for at in again.nonzero()[0])
        raise ParameterError(
            "kernattn serves no packed sequences: position_ids must not go back to 0 within a row, as each of its "
            f"tokens sees all before it; got 0 after {int(positions[row % len(positions), token])} at token "
            f"{token + 1} of row {row}: give each sequence a row of its own, padded, with attention_mask (batch, l), "
            "as a tokenizer's padding=True makes both"
        )
