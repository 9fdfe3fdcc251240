"""Rows of exact attention whose scores or sums may leave the range of floats, by array operations.

A row is judged by the keys that it sees, so that none is computed in another way because of what comes after it.
Nothing here is fast; no row of ordinary size comes here.
"""

from math import frexp, log2, prod
from types import ModuleType

from kernattn._arrays.namespaces import Array, anywhere, dtype_name, placement, sign
from kernattn._arrays.shapes import broadcast
from kernattn._sums.peaked import finite
from kernattn._sums.units import SAFE, in_units, shift_octaves

ENTRIES = 2**20  # of a block of scores
APART = 2.0**14  # more octaves than there are in any score


def far_rows(xp: ModuleType, q: Array, k: Array, v: Array, scale: float, before: int | None) -> Array | None:
    """Return which rows (..., n) may overflow though all that they see is finite; None where no row may, or none tells.

    Row i sees the keys up to before + i, or all of them; hidden ones are 0. Traced arrays cannot tell.
    """
    kind, n, (length, dim) = xp.finfo(q.dtype), q.shape[-2], k.shape[-2:]
    top, tiny = float(kind.max) / 8, float(kind.smallest_normal)
    sizes = [xp.max(xp.abs(x), axis=-1) for x in (q, k, v)]  # (..., n), (..., l), (..., l)
    keys, values = (_upto(xp, x[..., None], n, before)[..., 0] for x in sizes[1:])
    if scale == 0 or tiny <= abs(scale) <= float(kind.max):
        octaves = xp.log2(xp.clip(sizes[0], min=tiny)) + (log2(abs(scale)) if scale else -APART)
        scores = octaves + xp.log2(xp.clip(keys, min=tiny)) + log2(dim)
        far = (xp.maximum(octaves, scores) >= log2(top)) | (values >= top / length)
    else:  # a scale that is no float of this dtype
        far = values == values
    far = far & xp.isfinite(sizes[0]) & xp.isfinite(keys) & xp.isfinite(values)
    return far if anywhere(far) else None


def _upto(xp: ModuleType, x: Array, n: int, before: int | None) -> Array:
    """Return for each of n rows the largest of x (..., l, c) that it sees, of its first key where that is nothing."""
    length, shift = x.shape[-2], 1
    while shift < length:
        x = xp.concat([x[..., :shift, :], xp.maximum(x[..., shift:, :], x[..., :-shift, :])], axis=-2)
        shift *= 2
    if before is None:
        return x[..., -1:, :]
    return xp.take(x, xp.clip(xp.arange(before, before + n, **placement(x)), 0, length - 1), axis=-2)


def hide_unseen(xp: ModuleType, scores: Array, low: int, position: int | None, mask: Array | None) -> Array:
    """Return scores (..., n, b) of the keys from `low` on, -inf where a row does not see them.

    Row 0 sees the keys up to `position`, row i those up to position + i, or all of them.
    """
    (n, b), where = scores.shape[-2:], placement(scores)
    if mask is not None:
        scores = xp.where(mask[..., None, low : low + b], scores, -xp.inf)
    if position is not None and low + b - 1 > position:
        rows = xp.arange(position, position + n, **where)[:, None]
        scores = xp.where(xp.arange(low, low + b, **where) <= rows, scores, -xp.inf)
    return scores


def answer_far_rows(
    xp: ModuleType, q: Array, k: Array, v: Array, scale: float, before: int | None, mask: Array | None
) -> tuple[Array, Array]:
    """Return outputs among the values that a row sees, and log normalisers among the floats, where all is finite."""
    n, length = q.shape[-2], k.shape[-2]
    there = xp.isfinite(v) if mask is None else xp.isfinite(v) & mask[..., None]
    known = xp.where(there, v, xp.zeros_like(v))
    high, low = (_upto(xp, xp.where(there, x, -xp.inf), n, before) for x in (v, -v))
    lead = broadcast(q=tuple(q.shape[:-2]), k=tuple(k.shape[:-2]), v=tuple(v.shape[:-2]))
    step = max(1, ENTRIES // (length * prod(lead)))
    shares, logs = [], []
    for first in range(0, n, step):
        rows = (..., slice(first, min(first + step, n)), slice(None))
        position = None if before is None else before + first
        share, log = far_weights(xp, q[rows], k, scale, position, mask)
        shares.append(xp.matmul(share, known))
        logs.append(xp.broadcast_to(log, (*lead, log.shape[-1])))
    out, lse = xp.concat(shares, axis=-2), xp.concat(logs, axis=-1)
    limit = float(xp.finfo(lse.dtype).max)
    out = xp.where(xp.isinf(lse)[..., None], xp.zeros_like(out), xp.minimum(xp.maximum(out, -low), high))
    return out, xp.where(xp.isinf(lse), lse, xp.clip(lse, min=-limit, max=limit))


def far_weights(
    xp: ModuleType, q: Array, k: Array, scale: float, position: int | None, mask: Array | None
) -> tuple[Array, Array]:
    """Return the softmax of the scores of rows q (..., n, d), (..., n, l), and its log normaliser.

    Row 0 sees the keys up to `position`, as `hide_unseen` has it.
    """
    mantissa, octave = frexp(scale)
    (q, q_octaves), (k, k_octaves) = in_units(xp, q), in_units(xp, k)
    scores = xp.matmul(q * mantissa, xp.matrix_transpose(k))
    return _shares(xp, scores, q_octaves + xp.matrix_transpose(k_octaves) + octave, position, mask)


def _shares(
    xp: ModuleType, scores: Array, octaves: Array, position: int | None, mask: Array | None
) -> tuple[Array, Array]:
    """Return the softmax of scores 2^octaves (..., n, l), and its log normaliser, the largest float where beyond.

    The largest score of a row has a unit 2^u in which it is a float; it is taken off the others in that unit.
    """
    size = xp.abs(scores)
    order = xp.log2(xp.where(size == 0, xp.ones_like(size), size)) + octaves + APART
    ordered = hide_unseen(xp, sign(xp, scores) * order, 0, position, mask)
    largest = xp.abs(xp.max(ordered, axis=-1, keepdims=True)) - APART
    unit = xp.clip(xp.floor(finite(xp, largest)) - SAFE[dtype_name(scores)][0], min=0.0)
    scores = hide_unseen(xp, shift_octaves(xp, scores, octaves - unit), 0, position, mask)
    peak = finite(xp, xp.max(scores, axis=-1, keepdims=True))
    weights = xp.exp(shift_octaves(xp, scores - peak, unit))
    total = xp.sum(weights, axis=-1, keepdims=True)
    nothing, one = total == 0, xp.ones_like(total)
    log = shift_octaves(xp, peak, unit)
    limit = float(xp.finfo(log.dtype).max)
    log = xp.clip(log, min=-limit, max=limit) + xp.log(xp.where(nothing, one, total))
    return weights / xp.where(nothing, one, total), xp.where(nothing, -xp.inf, log)[..., 0]
