"""Which keys have cotangents: those that a query with a cotangent sees. What stands in others counts for nothing."""

from kernattn._arrays.namespaces import Array
from kernattn._sums.cotangents import sum_onto
from kernattn.ops._cuda import cupy
from kernattn.ops._cuda.axes import broadcast


def mask_of_seen_keys(
    has_cotangent: Array,
    length: int,
    key_lead: tuple[int, ...],
    key_mask: Array | None,
    *,
    causal: bool = False,
    runs: Array | None = None,
    end: bool = False,
) -> Array:
    """Return which keys (*key_lead, length) have cotangents, as bytes: those that a query which has one sees.

    has_cotangent (*lead, n) are bytes of queries, the last of which stands beside the last key; runs (*key_lead, n) are
    numbers of the segments in which they see. With `end`, one more has a cotangent after the last token.
    """
    n = has_cotangent.shape[-1]
    has_cotangent = sum_onto(cupy, has_cotangent, (*key_lead, n), cupy.max)
    if not causal:
        seen = cupy.broadcast_to(cupy.max(has_cotangent, axis=-1, keepdims=True) > 0, (*key_lead, length))
    else:
        later = cupy.flip(cupy.cumsum(cupy.flip(has_cotangent, axis=-1), axis=-1, dtype=cupy.int64), axis=-1) + int(end)
        if runs is not None:
            later = later - _after_runs(later, runs)
        before = cupy.broadcast_to(later[..., :1], (*key_lead, max(0, length - n)))
        seen = cupy.concatenate([before, later[..., max(0, n - length) :]], axis=-1) > 0
    return broadcast(seen if key_mask is None else seen & key_mask, key_lead, 1).view(cupy.uint8)


def _after_runs(later: Array, runs: Array) -> Array:
    """Return of numbers `later` (..., n) the one at the end of each token's run; 0 after the last."""
    n = runs.shape[-1]
    rows = cupy.reshape(runs, (-1, n))
    own = cupy.arange(rows.shape[0], dtype=cupy.int64)[:, None] * (n + 1)
    flat = cupy.reshape(rows + own, (-1,))
    ends = cupy.reshape(cupy.searchsorted(flat, flat, side="right"), rows.shape) - own // (n + 1) * n
    padded = cupy.concatenate([later, cupy.zeros_like(later[..., :1])], axis=-1)
    return cupy.take_along_axis(padded, cupy.reshape(ends, runs.shape), axis=-1)
