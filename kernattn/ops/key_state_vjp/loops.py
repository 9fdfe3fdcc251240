"""The way back through linear attention, chunk by chunk: tokens that write to sums, and tokens that read them.

Keys write for queries on the way forwards, queries over their normalisers for keys on the way backwards. Both write
their features times a row [v, h], and a reader with a row [w, l] gets the cotangents of its features, the sums over
what it sees of features times v.w + h l.
"""

from typing import Any, NamedTuple

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner, phase
from kernattn.ops._numba.codegen.memory import aligned, copy, pad, tile_rows, whole, window
from kernattn.ops._numba.codegen.registers import TALL, lanes
from kernattn.ops._numba.kinds import angular, column_join, column_pull
from kernattn.ops._numba.tiles.maps import unpack
from kernattn.ops._numba.tiles.products import FULL, LOWER, UPPER, product, transpose
from kernattn.ops._numba.tiles.rows import fetch_rows, given_rows
from kernattn.ops._numba.tiles.sums import Sums, clear, load_sums, rescale, store_sums
from kernattn.ops.key_state.loops import count_rows_of_sequence
from kernattn.ops.key_state_vjp.answers_loops import answer
from kernattn.ops.key_state_vjp.features_loops import read_weights, write_features
from kernattn.ops.key_state_vjp.pairs_loops import cut, meet, zeros_below
from kernattn.ops.key_state_vjp.tokens_loops import chunk_of, copy_back, describe, empty_tile, place, source

PIECE = 4 * TALL
"""Rows of a product, between which part of the next chunk is fetched."""

WRITER, READER, BEFORE, RESULT, FIRST, END = 0, 4, 8, 9, 10, 11
RUN_COLUMNS = 12
"""Columns of runs, where four heads of a writer begin, and those of a reader."""

X, V, OUTPUTS, MASK = range(4)
"""Those heads, in this order; also the first parts of tokens."""

H = 3
"""The part of tokens after these: h."""


@inner
def _multiply_factors(across, count, row, factor, h, rows):
    """Multiply columns of rows (e, C), and h, by what their features lack; return whether there is anything."""
    one, some = factor.dtype.type(1), 0
    for i in range(rows):
        some += 1 if factor[i] != one else 0
    if some > 0:
        for c in range(count):
            y = window(across, c * row, rows)
            for i in range(rows):
                y[i] *= factor[i]
        for i in range(rows):
            h[i] *= factor[i]
    return some > 0


@inner
def _write_cotangents(phi, du, slopes, x, x_at, x_stride, rows, size, tile, row, scaled, dx, at, step):
    """Write the cotangents of rows from those of their projections, (D, C)."""
    dim = phi.dim
    y, first, stride = place(dx, at, step, rows, dim, tile, row)
    if phi.omega.size > 0:
        product(du, 0, 1, size, phi.omega, 0, dim, y, first, stride, rows, dim, phi.frequencies, False, FULL)
    else:
        transpose(du, 0, size, dim, rows, y, first, stride)
    if scaled and phi.weights.size > 0:
        for j in range(rows):
            target, z = window(y, first + stride * j, dim), window(x, x_at + x_stride * j, dim)
            total = slopes[j] + slopes[j]
            for i in range(dim):
                target[i] += total * phi.weights[i] * z[i]
    copy_back(y, first, stride, dx, at, step, rows, dim)


@inner
def _add_offsets(f, count, row, rows, numbers, to):
    """Add the sums of f (M, C) over the tokens to numbers, from `to` on."""
    for a in range(count):
        y, total = window(f, a * row, rows), f.dtype.type(0)
        for i in range(rows):
            total += y[i]
        numbers[to + a] += total


@inner
def _add_weights(x, at, stride, rows, slopes, total):
    """Add the squares of rows, times slopes."""
    for j in range(rows):
        y = window(x, at + stride * j, total.size)
        for i in range(total.size):
            total[i] += slopes[j] * y[i] * y[i]


@inner
def _fetch_next(tokens, heads, n, position, step, rows, dim, e, i, some, features):
    """Fetch the i-th to (i + some)-th of so many parts of the next chunk."""
    x, v, out, _, _, _ = tokens
    first = position + rows if step > 0 else position - 2 * rows + 1
    low, high = dim * rows * i // features, dim * rows * (i + some) // features
    fetch_rows(x, (heads[X] * n + first) * dim + low, high - low)
    low, high = e * rows * i // features, e * rows * (i + some) // features
    fetch_rows(v, (heads[V] * n + first) * e + low, high - low)
    if given_rows(out):
        fetch_rows(out, (heads[OUTPUTS] * n + first) * e + low, high - low)


@inner
def _said(tokens):
    """Return h, z and peaks of normalisers, and whether there are outputs."""
    _, _, out, h, z, peaks = tokens
    return h, z, peaks, given_rows(out)


@inner
def answers(readers):
    """Do readers find their outputs themselves?"""
    return readers[H].size > 0 and not given_rows(readers[OUTPUTS])


class Tiles(NamedTuple):
    """Where a chunk of writers meets one of readers; made in compiled code, where it costs nothing."""

    left: Any  # the writers, and their features `keys`, (C, M)
    right: Any  # the readers, and their features `weights`, (M, C)
    keys: Any
    weights: Any
    f: Any  # (M, C), cotangents of the readers' features, then of their projections
    angles: Any  # (D, C), the readers' projections, where `column_join` wants them
    across: Any  # (e, C), rows of readers
    pairs: Any  # (C, C), products of writers and readers
    met: Any  # (C, C), of their features, where readers answer
    read: Any  # (C, e), what readers read, where it cannot be written in place
    packed: Any  # (d, C), rows of readers on their way into a product
    rows_dx: Any  # (C, d), their cotangents, where they cannot be written in place
    steep: Any  # (D, d), those of omega
    slopes: Any  # (C,), those of the readers' log scales
    base: Any  # units that the sums get with this chunk; `reached` the highest of a writer so far
    reached: Any
    totals: Any  # (M,), the sums of the writers' features times h
    edge: Any  # a vector of zeros, and one of ones
    size: Any  # numbers of a row of tiles (M, C); the others are those of `keys`, of rows of e, and of d
    row_k: Any
    row_e: Any
    row_dx: Any


@inner
def _tiles(phi_w, phi_r, writers, readers, e, chunk, learns, answers, like):
    """Return room for chunks of so many tokens."""
    size, row_e = tile_rows(chunk, like), tile_rows(e, like)
    wide = tile_rows(max(phi_r.features, phi_w.frequencies, phi_r.frequencies), like)
    row_k, row_dx = pad(wide, lanes(like)) + lanes(like), tile_rows(phi_r.dim, like)
    edge = aligned(2 * lanes(like), like)
    edge[lanes(like) :] = 1
    return Tiles(
        empty_tile(writers, phi_w.dim, e, size, like), empty_tile(readers, phi_r.dim, e, size, like),
        aligned(size * row_k, like), aligned(wide * size, like), aligned(wide * size, like),
        aligned(wide * size if angular(phi_r.kind) else 0, like), aligned(row_e * size, like),
        aligned(size * size, like), aligned(size * size if answers else 0, like),
        aligned(size * row_e, like), aligned(size * phi_r.dim, like),
        aligned(size * row_dx, like), aligned(tile_rows(phi_r.frequencies, like) * row_dx if learns else 0, like),
        aligned(size, like), aligned(wide, like), aligned(wide, like), aligned(wide, like), edge,
        size, row_k, row_e, row_dx,
    )  # fmt: skip


@phase
def _write(phi, writers, e, heads, mask, n, position, step, rows, seen, checks, sums, tiles):
    """Write the features of writers, and bring the sums to units that suit them.

    Return how many of the rows share these, and how many are too large or too small.
    """
    at_m, at, left, nothing = (
        heads[MASK] * n + position,
        heads[OUTPUTS] * n + position,
        tiles.left,
        tiles.keys.dtype.type(-np.inf),
    )
    chunk = chunk_of(writers, heads, n, position, step, rows, phi.dim, e, left)
    far = describe(phi, chunk, _said(writers), e, mask, at, at_m, step, rows, left, checks)
    in_place = phi.omega_t.size == 0
    x, x_at, x_row = source(chunk.x, chunk.at_x, step, rows, phi.dim, mask, at_m, left.x, phi.dim, in_place)
    source(chunk.v, chunk.at_v, step, rows, e, mask, at_m, left.v, tiles.row_e, False)
    rows = write_features(
        phi, x, x_at, x_row, left, rows, tiles.keys, tiles.row_k, sums, tiles.base, tiles.reached, tiles.totals
    )  # fmt: skip
    if seen:
        rescale(sums, tiles.base, nothing)
    else:
        copy(tiles.base, 0, sums.tops, sums.units, 0)
        for a in range(sums.features):
            sums.z[a] = 0
    return rows, far


@phase
def _project_readers(phi, x, at, stride, rows, units, tiles):
    """Write the features of readers, and their projections where these are wanted later."""
    weights, size = tiles.weights, tiles.size
    if phi.omega.size > 0:
        transpose(x, at, stride, rows, phi.dim, tiles.packed, 0, size)
        product(
            phi.omega, 0, phi.dim, 1, tiles.packed, 0, size, weights, 0, size,
            phi.frequencies, rows, phi.dim, False, FULL,
        )  # fmt: skip
    else:
        transpose(x, at, stride, rows, phi.dim, weights, 0, size)
    copy(weights, 0, tiles.angles.size, tiles.angles, 0)
    read_weights(phi, weights, size, tiles.right, rows, units)


@phase
def _read_sums(readers, heads, n, position, step, rows, dim, seen, writes, sums, tiles):
    """Set f to what readers find in the sums of earlier chunks, while the next chunk is fetched."""
    features, e, row_e, size, f = sums.features, sums.e, sums.row, tiles.size, tiles.f
    for i in range(0, features, PIECE):
        some, to = min(PIECE, features - i), i * size
        _fetch_next(readers, heads, n, position, step, rows, dim, e, i, some, features)
        if seen:
            product(sums.s, i * row_e, row_e, 1, tiles.across, 0, size, f, to, size, some, rows, e, False, FULL)
        elif not writes:
            for c in range(to, to + some * size):
                f[c] = 0


@phase
def _read_chunk(rows, seen, wants, num, num_at, num_row, sums, tiles):
    """Add to f, and where it is wanted to num, what readers find in this chunk: writers up to themselves."""
    features, e, row_e, size, row_k = sums.features, sums.e, sums.row, tiles.size, tiles.row_k
    pairs, f, width = tiles.pairs, tiles.f, lanes(tiles.f)
    cut(pairs, rows, size, tiles.left.h, tiles.right.h, tiles.edge)
    for i in range(0, rows, width):  # readers i see writers up to i
        some = min(width, rows - i)
        depth = min(rows, i + some)
        product(tiles.keys, 0, 1, row_k, pairs, i, size, f, i, size, features, some, depth, seen, FULL)
    if wants:
        product(tiles.keys, 0, row_k, 1, tiles.weights, 0, size, pairs, 0, size, rows, rows, features, False, UPPER)
        zeros_below(pairs, rows, size, tiles.edge)
        product(pairs, 0, 1, size, tiles.left.v, 0, row_e, num, num_at, num_row, rows, e, rows, seen, LOWER)


@phase
def _pull(phi, x, x_at, x_row, rows, scaled, z, numbers, tiles):
    """Turn f into cotangents of projections, and add those of the numbers of the map."""
    f, weights, size, slopes = tiles.f, tiles.weights, tiles.size, tiles.slopes
    features, dim, learns = phi.features, phi.dim, numbers.size > 0
    dim_all = phi.frequencies * dim
    column_pull(phi, f, weights, z, tiles.right.h, size, slopes)
    if learns and not phi.phase:
        _add_offsets(f, features, size, rows, numbers, dim_all)
    column_join(phi, f, weights, tiles.angles, size)
    if learns:
        if phi.phase:
            _add_offsets(f, features, size, rows, numbers, dim_all)
        if scaled and phi.weights.size > 0:
            _add_weights(x, x_at, x_row, rows, slopes, window(numbers, dim_all + features, dim))
        if phi.omega.size > 0:
            product(
                f, 0, size, 1, x, x_at, x_row, tiles.steep, 0, tiles.row_dx, phi.frequencies, dim, rows, True, FULL
            )  # fmt: skip


@phase
def _read(phi, readers, e, heads, head_out, mask, n, position, step, rows, seen, modes, sums, results, tiles):
    """Write the cotangents of readers, and what they read; return how many are too large or too small."""
    (dx, read, numbers), (writes, _, wants, scaled, checks) = results, modes
    right, size, row_e, at_m = tiles.right, tiles.size, tiles.row_e, heads[MASK] * n + position
    # features, and rows of values
    chunk = chunk_of(readers, heads, n, position, step, rows, phi.dim, e, right)
    at = heads[OUTPUTS] * n + position
    far = describe(phi, chunk, _said(readers), e, mask, at, at_m, step, rows, right, checks)
    in_place = numbers.size == 0  # else a product reads them by vectors
    x, x_at, x_row = source(chunk.x, chunk.at_x, step, rows, phi.dim, mask, at_m, right.x, phi.dim, in_place)
    _project_readers(phi, x, x_at, x_row, rows, sums.units, tiles)
    v, v_at, v_row = source(chunk.v, chunk.at_v, step, rows, e, mask, at_m, right.v, row_e, True)
    transpose(v, v_at, v_row, rows, e, tiles.across, 0, size)
    factors = _multiply_factors(tiles.across, e, size, right.factor, right.h, rows)
    # what they find in the sums, and in this chunk
    at = head_out * n + position
    num, num_at, num_row = whole(tiles.read), 0, row_e
    if wants:
        num, num_at, num_row = place(read, at, step, rows, e, tiles.read, row_e)
    _read_sums(readers, heads, n, position, step, rows, phi.dim, seen, writes, sums, tiles)
    if wants and seen:
        product(
            tiles.weights, 0, 1, size, sums.s, 0, row_e, num, num_at, num_row, rows, e, phi.features, False, FULL
        )  # fmt: skip
    if writes:
        meet(rows, sums, tiles)
    if answers(readers):
        at_h = heads[OUTPUTS] * n + position
        far += answer(rows, writes, seen, readers[H], at_h, step, checks, sums, tiles)
    if writes:
        _read_chunk(rows, seen, wants, num, num_at, num_row, sums, tiles)
    # back through the features
    _pull(phi, x, x_at, x_row, rows, scaled, sums.z, numbers, tiles)
    _write_cotangents(
        phi, tiles.f, tiles.slopes, x, x_at, x_row, rows, size, tiles.rows_dx, tiles.row_dx, scaled, dx, at, step
    )  # fmt: skip
    if wants:
        for j in range(rows if factors else 0):
            y, factor = window(num, num_at + num_row * j, e), right.factor[j]
            for c in range(e):
                y[c] *= factor
        copy_back(num, num_at, num_row, read, at, step, rows, e)
    return far


@phase
def _add_writers(writers, heads, n, position, step, rows, dim, seen, sums, tiles):
    """Add the features of writers, and these times their rows, to the sums, while the next chunk is fetched."""
    features, e, row_e = sums.features, sums.e, sums.row
    for a in range(features):
        sums.z[a] += tiles.totals[a]
    for i in range(0, features, PIECE):
        some, to = min(PIECE, features - i), i * row_e
        _fetch_next(writers, heads, n, position, step, rows, dim, e, i, some, features)
        product(tiles.keys, i, 1, tiles.row_k, tiles.left.v, 0, row_e, sums.s, to, row_e, some, e, rows, seen, FULL)


@compiled
def walk(
    phi_w, phi_r, e, writers, readers, masks, before, runs, n, results, after, far, chunk, step, modes, low, high
):  # fmt: skip
    """Take runs low to high, each of them tokens of one head, the last one first where step is -1.

    writers and readers are x, v, outputs, each (floats, bits, kind), h, and z and peaks of normalisers, all flat.
    Without normalisers there is no h and the row is [v, 1], else it is [v, h]. Where there are outputs o, h becomes
    -v.o; without them a reader's becomes less what it finds of v itself. runs (R, RUN_COLUMNS): of a writer the heads
    of x, of v, of outputs, and of the mask; the same of a reader; the heads of what came before, or -1, and of the
    results; first token in the order of the walk, and the one after the last. masks are those of writers and readers,
    and where sequences begin in the order of the walk. results are the cotangents of a reader's x, of what it reads,
    both (floats, bits, kind), and of omega, offset and row_weights of its map, one after the other. modes: are there
    writers? readers? Is what they read wanted? Does a reader's log scale count? Are sizes looked at? far_r becomes how
    many rows of a run were too large or too small.
    """
    phi_w, phi_r = unpack(phi_w), unpack(phi_r)
    (mask_w, mask_r, fresh), (_, _, numbers), (writes, reads, _, _, checks) = masks, results, modes
    like, features = whole(numbers), phi_r.features
    tiles = _tiles(phi_w, phi_r, writers, readers, e, chunk, numbers.size > 0, answers(readers), like)
    wide = tiles.totals.size
    sums = Sums(
        aligned(wide * tiles.row_e, like), aligned(wide, like), aligned(wide, like), aligned(wide, like),
        features, e, tiles.row_e, features if phi_r.per_feature else 1,
    )  # fmt: skip
    for r in range(low, high):
        start, t, end, count = runs[r, BEFORE], runs[r, FIRST], runs[r, END], 0
        writer, reader = window(runs[r], WRITER, 4), window(runs[r], READER, 4)
        clear(sums)
        if start >= 0:
            load_sums(sums, before, start)
        seen = start >= 0
        while t < end:
            rows, position = min(chunk, end - t), t if step > 0 else n - 1 - t
            if writes:
                if fresh.size > 0:
                    at = writer[MASK] * n + t
                    if fresh[at]:
                        clear(sums)
                        seen = False
                    rows = count_rows_of_sequence(fresh, at, rows)
                rows, some = _write(
                    phi_w, writers, e, writer, mask_w, n, position, step, rows, seen, checks, sums, tiles
                )  # fmt: skip
                count += some
            if reads:
                count += _read(
                    phi_r, readers, e, reader, runs[r, RESULT], mask_r, n, position, step, rows, seen, modes, sums,
                    results, tiles,
                )  # fmt: skip
            if writes:
                _add_writers(writers, writer, n, position, step, rows, phi_w.dim, seen, sums, tiles)
                seen = True
            t += rows
        far[r] = count
        if after[0].size > 0:
            store_sums(sums, after, r, like.dtype.type(-np.inf))
    if numbers.size > 0:
        for a in range(phi_r.frequencies):
            copy(tiles.steep, a * tiles.row_dx, phi_r.dim, numbers, a * phi_r.dim)
