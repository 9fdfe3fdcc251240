"""Heads as frameworks lay them out, and as the core groups them."""

from typing import NamedTuple

from torch import Tensor

from kernattn._runtime.checks import shown
from kernattn.errors import DTypeError, ShapeError


class Grouped(NamedTuple):
    """Queries, keys and values whose leading axes broadcast, and the mask of keys beside them."""

    q: Tensor  # (batch, heads, n, d), or (batch, kv_heads, group, n, d) where queries share keys
    k: Tensor  # (batch, heads, l, d), or (batch, kv_heads, 1, l, d)
    v: Tensor
    key_mask: Tensor | None


def group_heads(q: Tensor, k: Tensor, v: Tensor, key_mask: Tensor | None) -> Grouped:
    """Return heads (batch, heads, n, d) and a mask (batch, l) as the core takes them: a group of queries to a key."""
    for name, x in {"q": q, "k": k, "v": v}.items():
        if not isinstance(x, Tensor):
            raise DTypeError(f"{name} must be a tensor of PyTorch; got {shown(x)}")
        if x.ndim != 4:
            raise ShapeError(f"{name} must be (batch, heads, n, d); got shape {tuple(x.shape)}")
    if key_mask is not None and (not isinstance(key_mask, Tensor) or key_mask.ndim != 2):
        given = f"shape {tuple(key_mask.shape)}" if isinstance(key_mask, Tensor) else shown(key_mask)
        raise ShapeError(f"key_mask must be (batch, l), True where there is a key; got {given}")
    heads, kv_heads = q.shape[1], k.shape[1]
    if heads == kv_heads:
        return Grouped(q, k, v, None if key_mask is None else key_mask[:, None])
    if v.shape[1] != kv_heads or not kv_heads or heads % kv_heads:
        raise ShapeError(
            "q must have as many heads as k and v, or a multiple for grouped queries; "
            f"got {heads} for q, {kv_heads} for k and {v.shape[1]} for v"
        )
    mask = None if key_mask is None else key_mask[:, None, None]
    return Grouped(q.unflatten(1, (kv_heads, -1)), k.unsqueeze(2), v.unsqueeze(2), mask)


def join_heads(out: Tensor) -> Tensor:
    """Return an output with its groups of heads as one axis: (batch, heads, n, e)."""
    return out if out.ndim == 4 else out.flatten(1, 2)
