"""Queries against the sums of keys, a chunk at a time."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from kernattn.ops._numba.compile import compiled
from kernattn.ops._numba.maps import unpacked
from kernattn.ops._numba.memory import aligned, tile_rows, whole
from kernattn.ops._numba.outputs import log_normalisers, write
from kernattn.ops._numba.products import FULL, product
from kernattn.ops._numba.sums import Sums, load_sums
from kernattn.ops._numba.tiles import query_features

__all__ = ["answer"]


@compiled
def answer(phi, e, q, given, reads, n, answers, chunk, low, high):
    """Answer blocks low to high of `chunk` queries, numbered read by read.

    given: s, z and peak of all heads; reads (R, 3): head of q, of the state, of out; answers: as in `recur`.
    """
    phi, q = unpacked(phi), whole(q)
    out, logs, signs = answers
    features, per_feature = phi.features, phi.per_feature
    row_e = tile_rows(e, q)
    size = tile_rows(chunk, q)
    wide = tile_rows(max(features, phi.frequencies), q)
    highest, den, spare = aligned(size, q), aligned(size, q), aligned(2 * wide, q)
    queries = aligned(wide * size, q)
    packed = aligned(size * phi.dim, q)
    num = aligned(size * row_e, q)
    tops = features if per_feature else 1
    sums = Sums(aligned(wide * row_e, q), aligned(wide, q), aligned(wide, q), features, e, row_e, tops)
    blocks = (n + chunk - 1) // chunk
    loaded = -1
    for b in range(low, high):
        r, t = b // blocks, b % blocks * chunk
        head = reads[r, 1]
        if head != loaded:
            loaded = head
            load_sums(sums, given, head)
        rows = min(chunk, n - t)
        for i in range(rows):
            den[i] = 0
        query_features(
            phi,
            q,
            (reads[r, 0] * n + t) * phi.dim,
            rows,
            sums.units,
            sums.z,
            packed,
            queries,
            size,
            highest,
            den,
            spare,
        )
        product(queries, 0, 1, size, sums.s, 0, row_e, num, 0, row_e, rows, e, features, False, FULL)
        write(num, row_e, rows, e, den, out, (reads[r, 2] * n + t) * e)
        if logs.size > 0:
            if not per_feature:
                highest[:rows] += sums.units[0]
            log_normalisers(den, highest, rows, logs, signs, reads[r, 2] * n + t)
