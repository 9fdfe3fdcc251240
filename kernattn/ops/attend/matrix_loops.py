"""Queries against the sums of keys on the matrix unit, a chunk at a time; features and normalisers are floats'.

What queries read stands columns by queries. Queries that are far, or that meet so little that its digits are lost, are
told to the caller, and all queries of sums that tiles cannot hold.
"""

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled
from kernattn.ops._numba.codegen.memory import aligned, copy, pad, tile_rows, whole, window
from kernattn.ops._numba.far.negligible import raise_queries
from kernattn.ops._numba.matrix.instructions import configure, release, unit_room
from kernattn.ops._numba.matrix.linear import FAINT, far_sums, pack_queries, round_queries
from kernattn.ops._numba.matrix.parts import FAR, all_near, is_far, pack_row
from kernattn.ops._numba.matrix.products import BLOCK, multiply
from kernattn.ops._numba.matrix.projections import project, projector_for
from kernattn.ops._numba.tiles.chunk import query_features
from kernattn.ops._numba.tiles.maps import unpack
from kernattn.ops._numba.tiles.outputs import normalisers, write_rows
from kernattn.ops._numba.tiles.products import transpose
from kernattn.ops._numba.tiles.rows import as_read, room_of, wide_rows
from kernattn.ops._numba.tiles.sums import Sums, load_sums
from kernattn.ops.attend.loops import OUT, QUERY, STATE


@compiled
def answer_tiles(phi, e, tokens, scales, given, reads, n, answers, chunk, made, told, low, high):
    """Answer blocks low to high of `chunk` queries, as `answer` does, and tell which rows floats are to answer.

    `made` are parts of the weights of queries. Rows of out are 1 in `told`.
    """
    phi, tokens, scales = unpack(phi), as_read(tokens), whole(scales)
    q = tokens[0]
    out, peaks, z = answers
    features, zero = phi.features, q.dtype.type(0)
    row_e, size, m, columns = tile_rows(e, q), pad(chunk, BLOCK), pad(features, BLOCK), pad(e, BLOCK)
    wide = tile_rows(max(features, phi.frequencies), q)
    highest, own, den, inside, before = (
        aligned(size, q), aligned(size, q), aligned(size, q), aligned(size, q), aligned(size, q)
    )  # fmt: skip
    spare, queries, packed = aligned(2 * wide, q), aligned(wide * size, q), aligned(size * phi.dim, q)
    num, turned = aligned(size * row_e, q), aligned(columns * max(size, m), q)
    wide_q, wide_out = aligned(room_of(size * phi.dim, tokens), q), aligned(room_of(size * e, out), q)
    sum_rows = aligned(2 * columns * m, np.zeros(0, np.uint16))
    pairs = aligned(made * m // 2 * size, np.zeros(0, np.uint32))
    tops = features if phi.per_feature else 1
    sums = Sums(
        aligned(wide * row_e, q), aligned(wide, q), aligned(wide, q), aligned(wide, q), features, e, row_e, tops
    )  # fmt: skip
    no_keys, unit, no_mask = window(q, 0, 0), unit_room(), np.zeros(0, np.bool_)
    projector = projector_for(phi, size, tokens, q)
    blocks, loaded, far = (n + chunk - 1) // chunk, -1, False
    configure(unit)
    for b in range(low, high):
        r, t = b // blocks, b % blocks * chunk
        head = reads[r, STATE]
        if head != loaded:
            loaded = head
            load_sums(sums, given, head)
            far = far_sums(sums)
            transpose(sums.s, 0, row_e, features, e, turned, 0, m)
            for c in range(e):
                pack_row(turned, c * m, features, sum_rows, c * m, columns * m, 2)
        rows = min(chunk, n - t)
        depth = pad(rows, BLOCK)
        at_q, at_out = reads[r, QUERY] * n + t, reads[r, OUT] * n + t
        q, from_q = wide_rows(tokens, at_q * phi.dim, rows * phi.dim, wide_q)
        projected = project(unit, projector, q, from_q, phi.dim, rows, no_mask, 0)
        query_features(
            phi, q, from_q, rows, sums.units, sums.z, packed, queries, size, highest, own, den, spare, projected
        )  # fmt: skip
        copy(highest, 0, rows, before, 0)
        if made == 1:
            round_queries(queries, size, features, rows, sums.z, den)
        if phi.positive:
            raise_queries(
                queries, size, rows, features, sums.z, no_keys, 0, no_keys, False, den, inside, highest
            )  # fmt: skip
        pack_queries(queries, size, features, depth, pairs, m, made)
        multiply(
            unit, sum_rows, 0, m, BLOCK, columns * m, pairs, 0, size, m // 2 * size, (2, made, 2), turned, 0, size,
            columns, depth, m, False,
        )  # fmt: skip
        transpose(turned, 0, size, e, rows, num, 0, row_e)
        write_rows(num, row_e, rows, e, den, wide_out, out, at_out * e)
        if peaks.size > 0:
            own_unit = zero if phi.per_feature else sums.units[0]
            normalisers(phi, den, own_unit, highest, own, rows, scales, at_q, peaks, z, at_out)
        most = q.dtype.type(FAR)
        near = all_near(q, from_q, rows * phi.dim, zero, most)
        for i in range(rows):
            x = window(q, from_q + i * phi.dim, phi.dim)
            low_den = highest[i] != before[i] or (den[i] != zero and not den[i] >= q.dtype.type(FAINT))
            if far or low_den or (not near and is_far(x, zero, most)):
                told[at_out + i] = 1
    release(unit)
