r"""Causal linear attention in array-API, by doubling.

The sequence is cut into chunks. Between chunks, summaries of the keys are scanned by doubling (log2 of the number of
chunks steps). Inside a chunk, at level h = 1, 2, 4, ... the right half of every run of 2h tokens sees the whole left
half: so the unit of a product is the left half's own peak, which every query of the right half sees, and no scale ever
comes from a later key. No array value is tested and nothing is written in place: JAX can trace it.
"""

from types import ModuleType

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace, zero_masked, zeros
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.peaked import (
    Normaliser,
    PeakedSum,
    empty,
    finite,
    lowered_values,
    merge,
    quotient,
    read,
    row_normaliser,
    summarise,
)
from kernattn.ops.features.reference import features_of_side, relative

CHUNK = 64


def causal(
    q: Array | ScaledFeatures,
    k: Array | ScaledFeatures,
    v: Array,
    q_spec: MapSpec | None,
    k_spec: MapSpec | None,
    state: PeakedSum | None,
    key_mask: Array | None,
    segment_ids: Array | None,
    normaliser: bool,
) -> tuple[Array, Normaliser | None, PeakedSum]:
    """Return the outputs of all tokens, their normalisers where they are wanted, and the state after the last."""
    xp = namespace(v=v)
    (queries, own), keys = relative(q, q_spec, normaliser), features_of_side(k, k_spec, key_mask)
    dtype = accumulation_dtype(xp, v)
    n = v.shape[-2]
    size = min(CHUNK, 1 << (n - 1).bit_length())
    mask = _all_true(xp, n, v) if key_mask is None else key_mask
    segment = zeros(xp, (n,), xp.int32, v) if segment_ids is None else count_segments(xp, segment_ids)

    queries = ScaledFeatures(*(_fold(xp, x, size) for x in queries))  # (..., N, C, M | 1)
    keys = ScaledFeatures(*(_fold(xp, x, size) for x in keys))
    values = _fold(xp, xp.astype(v, dtype, copy=False), size)  # (..., N, C, e)
    mask = _fold(xp, mask[..., None], size)[..., 0]  # (..., N, C); the padding is masked
    segment = _fold(xp, segment[..., None], size, edge=True)[..., 0]  # (..., N, C)

    before, after = _prefixes(xp, keys, values, mask, segment, state)
    first_segment = xp.concat([xp.zeros_like(segment[..., :1, -1]), segment[..., :-1, -1]], axis=-1)  # (..., N)
    total = read(xp, queries, before, segment == first_segment[..., None])
    total = merge(xp, total, _own_key(xp, queries, keys, values, mask))
    half = 1
    while half < size:
        total = merge(xp, total, _left_half(xp, queries, keys, values, mask, segment, half))
        half *= 2

    out = _unfold_chunks(xp, quotient(xp, total, v.dtype), n)
    normalisers = None
    if normaliser:
        z, peak = (_unfold_chunks(xp, x[..., None], n)[..., 0] for x in (total.z, total.peak))
        normalisers = row_normaliser(xp, z, peak, own)
    return out, normalisers, after


def _unfold_chunks(xp: ModuleType, x: Array, n: int) -> Array:
    """Put chunks back in a row, without the padding: (..., N, C, c) -> (..., n, c)."""
    return xp.reshape(x, (*x.shape[:-3], -1, x.shape[-1]))[..., :n, :]


def _all_true(xp: ModuleType, n: int, beside: Array) -> Array:
    return zeros(xp, (n,), xp.int32, beside) == 0


def count_segments(xp: ModuleType, ids: Array) -> Array:
    """Number the runs of equal ids: 0 for the first."""
    starts = xp.astype(ids[..., 1:] != ids[..., :-1], xp.int32)
    starts = xp.concat([xp.zeros_like(ids[..., :1], dtype=xp.int32), starts], axis=-1)
    return xp.cumulative_sum(starts, axis=-1, dtype=xp.int32)


def _fold(xp: ModuleType, x: Array, size: int, edge: bool = False) -> Array:
    """Cut axis -2 into chunks, (..., n, c) -> (..., N, size, c), padding with zeros or with the last row."""
    missing = -x.shape[-2] % size
    if missing:
        shape = (*x.shape[:-2], missing, x.shape[-1])
        padding = xp.broadcast_to(x[..., -1:, :], shape) if edge else zeros(xp, shape, x.dtype, x)
        x = xp.concat([x, padding], axis=-2)
    return xp.reshape(x, (*x.shape[:-2], -1, size, x.shape[-1]))


def _prefixes(
    xp: ModuleType, keys: ScaledFeatures, v: Array, mask: Array, segment: Array, state: PeakedSum | None
) -> tuple[PeakedSum, PeakedSum]:
    """Return the sums before each chunk, (..., N, M, e), and after the last, (..., M, e)."""
    last = segment[..., -1:]  # (..., N, 1)
    tails = summarise(xp, keys, v, mask & (segment == last))  # of each chunk's last segment
    lead, rows, e = tuple(tails.s.shape[:-3]), tails.s.shape[-2], tails.s.shape[-1]
    if state is None:
        state = empty(xp, lead, rows, tails.peak.shape[-1], e, v.dtype, v)
    total = PeakedSum(
        *(
            xp.concat([xp.broadcast_to(a[..., None, *tail], (*lead, 1, *b.shape[len(lead) + 1 :])), b], axis=len(lead))
            for a, b, tail in zip(state, tails, ((slice(None),) * 2, (slice(None),), (slice(None),)), strict=True)
        )
    )  # (..., 1 + N, M, e)
    starts = last[..., 0] != xp.concat([xp.zeros_like(last[..., :1, 0]), last[..., :-1, 0]], axis=-1)
    fresh = xp.concat([xp.zeros_like(starts[..., :1]), starts], axis=-1)  # (..., 1 + N): nothing passes into it
    count = v.shape[-3] + 1
    shift = 1
    while shift < count:
        left = PeakedSum(
            *(
                _shift(xp, part, shift, axis, fill)
                for part, axis, fill in zip(total, (-3, -2, -2), (0.0, 0.0, -xp.inf), strict=True)
            )
        )
        both = merge(xp, left, total)
        total = PeakedSum(
            xp.where(fresh[..., None, None], total.s, both.s),
            xp.where(fresh[..., None], total.z, both.z),
            xp.where(fresh[..., None], total.peak, both.peak),
        )
        fresh = fresh | xp.concat([xp.zeros_like(fresh[..., :shift]), fresh[..., :-shift]], axis=-1)
        shift *= 2
    before = PeakedSum(total.s[..., :-1, :, :], total.z[..., :-1, :], total.peak[..., :-1, :])
    after = PeakedSum(total.s[..., -1, :, :], total.z[..., -1, :], total.peak[..., -1, :])
    return before, after


def _shift(xp: ModuleType, x: Array, shift: int, axis: int, fill: float) -> Array:
    """Move x by `shift` along axis, `fill` coming in at the front."""
    tail = (slice(None),) * (-axis - 1)
    front = xp.zeros_like(x[..., :shift, *tail]) + fill
    return xp.concat([front, x[..., :-shift, *tail]], axis=axis)


def _own_key(xp: ModuleType, queries: ScaledFeatures, keys: ScaledFeatures, v: Array, mask: Array) -> PeakedSum:
    """Return each query's sum over the key of its own token."""
    log_scale = xp.where(mask[..., None], queries.log_scale + keys.log_scale, -xp.inf)  # (..., C, M | 1)
    peak = xp.max(log_scale, axis=-1, keepdims=True)
    products = queries.values * keys.values * xp.exp(log_scale - finite(xp, peak))  # (..., C, M)
    z = xp.sum(zero_masked(products, mask), axis=-1)
    v, factor, rise = lowered_values(xp, zero_masked(v, mask), -1)
    s, z, peak = z[..., None] * v, z * factor[..., 0], peak[..., 0] + rise[..., 0]
    return PeakedSum(s, z, xp.broadcast_to(peak, z.shape))


def _left_half(
    xp: ModuleType, queries: ScaledFeatures, keys: ScaledFeatures, v: Array, mask: Array, segment: Array, half: int
) -> PeakedSum:
    """Return, for each run of 2 * half tokens, the sums of its right half's queries over its left half's keys."""
    q = ScaledFeatures(*(side_of(xp, x, half, 1) for x in queries))  # (..., C / 2h, h, M | 1)
    k = ScaledFeatures(*(side_of(xp, x, half, 0) for x in keys))
    left, right = (side_of(xp, segment[..., None], half, side)[..., 0] for side in (0, 1))
    crossing = right[..., :1]  # of one run of tokens, only the segment at its middle crosses it
    seen = side_of(xp, mask[..., None], half, 0)[..., 0] & (left == crossing)

    k_log = xp.where(seen[..., None], k.log_scale, -xp.inf)
    unit = xp.max(k_log, axis=-2, keepdims=True)  # (..., 1, M | 1)
    k_weights = xp.where(seen[..., None], k.values, xp.zeros_like(k.values)) * xp.exp(k_log - finite(xp, unit))
    sees = right == crossing
    q_log = xp.where(sees[..., None], q.log_scale + unit, -xp.inf)
    peak = xp.max(q_log, axis=-1, keepdims=True)  # (..., h, 1)
    q_weights = q.values * xp.exp(q_log - finite(xp, peak))
    products = xp.matmul(q_weights, xp.matrix_transpose(k_weights))  # (..., h, h)
    values, factor, rise = lowered_values(xp, xp.where(seen[..., None], side_of(xp, v, half, 0), 0.0), (-2, -1))
    products = xp.where(sees[..., None], products, xp.zeros_like(products))  # of NaN, too
    s = xp.where(sees[..., None], xp.matmul(products, values), 0.0)
    z = xp.sum(products, axis=-1) * factor[..., 0]
    peak = xp.broadcast_to(peak[..., 0] + rise[..., 0], z.shape)
    return PeakedSum(
        _unfold(xp, s, 0.0), _unfold(xp, z[..., None], 0.0)[..., 0], _unfold(xp, peak[..., None], -xp.inf)[..., 0]
    )


def side_of(xp: ModuleType, x: Array, half: int, side: int) -> Array:
    """Return one half of each run of 2 * half rows: (..., C, c) -> (..., C / 2h, h, c)."""
    return xp.reshape(x, (*x.shape[:-2], -1, 2, half, x.shape[-1]))[..., side, :, :]


def _unfold(xp: ModuleType, right: Array, fill: float) -> Array:
    """Put the right halves back among the rows of their chunk, with `fill` for the left ones."""
    both = xp.stack([xp.zeros_like(right) + fill, right], axis=-3)  # (..., C / 2h, 2, h, c)
    return xp.reshape(both, (*both.shape[:-4], -1, both.shape[-1]))
