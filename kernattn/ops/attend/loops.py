"""Queries against the sums of keys, a chunk at a time."""

from kernattn.ops._numba.codegen.compile import compiled, inner
from kernattn.ops._numba.codegen.memory import aligned, tile_rows, whole, window
from kernattn.ops._numba.far.negligible import raise_queries
from kernattn.ops._numba.tiles.chunk import query_features
from kernattn.ops._numba.tiles.maps import unpack
from kernattn.ops._numba.tiles.outputs import normalisers, write_rows
from kernattn.ops._numba.tiles.products import FULL, product
from kernattn.ops._numba.tiles.rows import as_read, room_of, wide_rows
from kernattn.ops._numba.tiles.sums import Sums, load_sums, load_units

QUERY, STATE, OUT = range(3)
"""Columns of reads: heads of q, of the state and of out."""


@inner
def _may_be_positive(z):
    """Can z be sums of positive features? Those of a signed map can have any normaliser."""
    count = 0
    for a in range(z.size):
        count += 1 if z[a] < 0 else 0
    return count == 0


@compiled
def answer(phi, e, tokens, scales, given, reads, n, answers, chunk, low, high):
    """Answer blocks low to high of `chunk` queries, numbered read by read.

    Tokens are rows of q, and scales their log scales where they are given; `given` is s, z and peak of all heads;
    answers are as in `recur`.
    """
    phi, tokens, scales = unpack(phi), as_read(tokens), whole(scales)
    q = tokens[0]
    out, peaks, z = answers
    features, per_feature = phi.features, phi.per_feature
    row_e = tile_rows(e, q)
    size = tile_rows(chunk, q)
    wide = tile_rows(max(features, phi.frequencies), q)
    highest, own, den, inside = aligned(size, q), aligned(size, q), aligned(size, q), aligned(size, q)
    spare = aligned(2 * wide, q)
    queries = aligned(wide * size, q)
    packed = aligned(size * phi.dim, q)
    num = aligned(size * row_e, q)
    wide_q, wide_out = aligned(room_of(size * phi.dim, tokens), q), aligned(room_of(size * e, out), q)
    tops = features if per_feature else 1
    sums = Sums(
        aligned(wide * row_e, q), aligned(wide, q), aligned(wide, q), aligned(wide, q), features, e, row_e, tops
    )
    no_keys = window(q, 0, 0)
    blocks = (n + chunk - 1) // chunk
    loaded, positive, s = -1, False, no_keys
    for b in range(low, high):
        r, t = b // blocks, b % blocks * chunk
        head = reads[r, STATE]
        if head != loaded:
            loaded = head
            s = window(given[0], head * features * e, features * e)
            if not load_units(sums, given, head) or row_e > e:
                load_sums(sums, given, head)
                s = whole(sums.s)
            positive = phi.positive and _may_be_positive(window(sums.z, 0, features))
        rows = min(chunk, n - t)
        at_q, at_out = reads[r, QUERY] * n + t, reads[r, OUT] * n + t
        q, from_q = wide_rows(tokens, at_q * phi.dim, rows * phi.dim, wide_q)
        query_features(
            phi, q, from_q, rows, sums.units, sums.z, packed, queries, size, highest, own, den, spare, (no_keys, 0)
        )  # fmt: skip
        if positive:
            raise_queries(queries, size, rows, features, sums.z, no_keys, 0, no_keys, False, den, inside, highest)
        product(queries, 0, 1, size, s, 0, row_e, num, 0, row_e, rows, e, features, False, FULL)
        write_rows(num, row_e, rows, e, den, wide_out, out, at_out * e)
        if peaks.size > 0:
            unit = q.dtype.type(0) if per_feature else sums.units[0]
            normalisers(phi, den, unit, highest, own, rows, scales, at_q, peaks, z, at_out)
