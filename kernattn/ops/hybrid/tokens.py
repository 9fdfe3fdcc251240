"""Tokens of a stream, picked out of whole sequences, and put back."""

from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Array, constant, indices, namespace, zeros
from kernattn._maps.spec import ScaledFeatures
from kernattn._plans.streams import Pick, Stream
from kernattn.ops.causal.reference import count_segments


class Tokens(NamedTuple):
    """What causal attention takes of a stream."""

    q: Any  # rows, or ScaledFeatures
    k: Any
    v: Array
    mask: Array | None
    segments: Array | None


def tokens_of(
    stream: Stream, q: Any, k: Any, v: Array, key_mask: Array | None, segment_ids: Array | None, n: int
) -> Tokens:
    """Return the tokens of a stream over n queries, with keys masked that nobody of their segment reads after them."""
    xp = namespace(v=v)
    mask, segments = masks_of(v, stream, key_mask, segment_ids, n)
    q, k = (_pick_side(xp, x, stream, how) for x, how in ((q, stream.queries), (k, stream.keys)))
    return Tokens(q, k, pick(ordered(xp, v, stream), stream.keys), mask, segments)


def masks_of(
    v: Array, stream: Stream, key_mask: Array | None, segment_ids: Array | None, n: int
) -> tuple[Array | None, Array | None]:
    """Return the mask and the segments of a stream's tokens, None where all are alike."""
    xp, missing = namespace(v=v), stream.keys.missing
    mask = None if key_mask is None else pick_row(ordered(xp, key_mask[..., None], stream)[..., 0], stream.keys, False)
    if missing is not None:
        here = constant(xp, ~missing, xp.bool, v)
        mask = here if mask is None else mask & here
    segments = None
    if segment_ids is not None:
        runs = ordered(xp, count_segments(xp, segment_ids)[..., None], stream)[..., 0]
        asked = runs[..., :n] if stream.reverse else runs[..., runs.shape[-1] - n :]
        segments = pick_row(asked, stream.following, 0)
        alike = pick_row(runs, stream.keys, -1) == segments
        mask = alike if mask is None else mask & alike
    return mask, segments


def _pick_side(xp: ModuleType, x: Any, stream: Stream, how: Pick) -> Any:
    if isinstance(x, ScaledFeatures):
        return ScaledFeatures(*(pick(ordered(xp, part, stream), how) for part in x))
    return pick(ordered(xp, x, stream), how)


def ordered(xp: ModuleType, x: Array, stream: Stream) -> Array:
    """Return rows (..., n, c) in the order of a stream, or those of a stream as they stand."""
    return xp.flip(x, axis=-2) if stream.reverse else x


def pick(x: Array, how: Pick, fill: float = 0.0) -> Array:
    """Return the rows of x (..., n, c) that a pick names, and rows of `fill` where it names none."""
    xp = namespace(x=x)
    if how.rows is not None:
        taken = xp.take(x, indices(xp, np.maximum(how.rows, 0), x), axis=-2)
        missing = how.missing
        if missing is None:
            return taken
        return xp.where(constant(xp, missing[:, None], xp.bool, x), xp.full_like(taken, fill), taken)
    inside = x[..., how.start : how.stop, :]
    if how.before == how.after == 0:
        return inside
    sizes = [size for size in (how.before, how.after) if size]
    ends = [zeros(xp, (*x.shape[:-2], size, x.shape[-1]), x.dtype, x) for size in sizes]
    ends = [end if fill == 0 else xp.full_like(end, fill) for end in ends]
    parts = [*ends[: how.before > 0], inside, *ends[how.before > 0 :]]
    return xp.concat(parts, axis=-2)


def pick_row(x: Array, how: Pick, fill: float) -> Array:
    """Return the picked numbers of x (..., n), `fill` where there is none."""
    return pick(x[..., None], how, fill)[..., 0]
