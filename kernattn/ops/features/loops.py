"""Features of rows, written out; and the log scales of rows that are not sums of their squares alone."""

import math

from kernattn.ops._numba.codegen.compile import compiled, inner, inner_exact
from kernattn.ops._numba.codegen.elementary import exponential
from kernattn.ops._numba.codegen.halves import round_off
from kernattn.ops._numba.codegen.memory import aligned, pad, tile_rows, whole, window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import load, store, where
from kernattn.ops._numba.far.clamped import far_form, far_scale, finite, largest_log, project_far, within
from kernattn.ops._numba.tiles.chunk import load_rows, row_scales
from kernattn.ops._numba.tiles.finish import far_scales, finish_features, finish_numbers, limit_of
from kernattn.ops._numba.tiles.maps import unpack
from kernattn.ops._numba.tiles.products import panel_product
from kernattn.ops._numba.tiles.rows import as_read, room_of, wide_rows


@inner
def _renew_far(phi, x, rows, begin, count, tile, row):
    """Project rows that are far once more, in float64."""
    for j in range(rows):
        own = window(x, j * phi.dim, phi.dim)
        if not within(own, phi.reach) and finite(own):
            project_far(phi.omega_t, own, begin, limit_of(phi, own), window(tile, j * row, count))


@inner
def block_features(
    phi, x, at, rows, given, given_at, no_mask, span, packed, tile, row, scales, out, out_at, out_row,
):  # fmt: skip
    """Write the features of a block of rows, `span` frequencies at a time: they stay in cache until written."""
    dim, frequencies = phi.dim, phi.frequencies
    if given.size == 0 and phi.positive and phi.omega_t.size == 0:
        finish_numbers(phi, x, at, rows, tile, row, out, out_at, out_row)
        return
    load_rows(x, at, rows, dim, no_mask, 0, packed, dim)
    row_scales(phi.weights, packed, rows, dim, dim, given, given_at, no_mask, 0, scales)
    near = phi.reach == 0 or within(window(packed, 0, rows * dim), phi.reach)
    if not near:
        far_scales(phi, packed, rows, dim, phi.reach, scales)
    for begin in range(0, frequencies, span):
        count = min(span, frequencies - begin)
        if phi.omega_t.size > 0:
            panel_product(packed, rows, dim, phi.omega_t, begin, count, tile, row)
        else:
            for j in range(rows):
                source, target = window(packed, j * dim + begin, count), window(tile, j * row, count)
                for i in range(count):
                    target[i] = source[i]
        if not near:
            _renew_far(phi, packed, rows, begin, count, tile, row)
        finish_features(phi, tile, rows, row, begin, count, scales, out, out_at, out_row)


@inner
def span_row(span, like):
    """Return the row length of a tile for the features of `span` frequencies."""
    return 2 * pad(span, lanes(like)) + lanes(like)


@compiled
def write_features(arrays, x, given, n, out, no_mask, chunk, span, low, high):
    """Write the features of blocks low to high of `chunk` rows of x (n, d) to out (n, M), both (floats, bits, kind)."""
    phi, x, given = unpack(arrays), as_read(x), whole(given)
    floats, bits, kind = out
    dim, features = phi.dim, phi.features
    row, size = span_row(span, given), tile_rows(chunk, given)
    tile, packed, scales = aligned(size * row, given), aligned(size * dim, given), aligned(size, given)
    wide, block = aligned(room_of(size * dim, x), given), aligned(0 if kind == 0 else chunk * features, given)
    for first in range(low * chunk, min(high * chunk, n), chunk):
        rows = min(chunk, n - first)
        near, at = wide_rows(x, first * dim, rows * dim, wide)
        into, to = (whole(floats), first * features) if kind == 0 else (whole(block), 0)
        block_features(
            phi, near, at, rows, given, first, no_mask, span, packed, tile, row, scales, into, to, features
        )  # fmt: skip
        if kind != 0:
            round_off(block, 0, rows * features, bits, kind, first * features)


@compiled
def write_scales(weights, centre, linear, factor_t, rank, x, scales, chunk, low, high):
    """Write w.x^2 + l.x - |F (x - c)|^2 / 2 of blocks low to high of `chunk` rows of x (n, d), (floats, bits, kind).

    Parts without entries count as zeros; factor_t is F, of `rank` rows, transposed in panels. The parts of far rows are
    held.
    """
    given, weights, centre, linear, factor_t = as_read(x), whole(weights), whole(centre), whole(linear), whole(factor_t)
    dim = (given[0].size + given[1].size) // scales.size
    size, row = tile_rows(chunk, scales), pad(rank, lanes(scales)) + lanes(scales)
    packed, tile, wide = aligned(size * dim, scales), aligned(size * row, scales), aligned(size * dim, scales)
    half, limit = scales.dtype.type(0.5), largest_log(scales)
    for first in range(low * chunk, min(high * chunk, scales.size), chunk):
        rows = min(chunk, scales.size - first)
        x, at = wide_rows(given, first * dim, rows * dim, wide)
        if rank > 0:
            for j in range(rows):
                source, target = window(x, at + j * dim, dim), window(packed, j * dim, dim)
                for i in range(dim):
                    target[i] = source[i] - centre[i]
            panel_product(packed, rows, dim, factor_t, 0, rank, tile, row)
        for j in range(rows):
            source, y = window(x, at + j * dim, dim), window(tile, j * row, rank)
            total = squares = x.dtype.type(0)
            for i in range(weights.size):
                total += weights[i] * source[i] * source[i]
            for i in range(linear.size):
                total += linear[i] * source[i]
            for a in range(rank):
                squares += y[a] * y[a]
            total -= half * squares
            if not abs(total) < limit and finite(source):
                total = far_scale(weights, source, limit) + far_form(centre, linear, factor_t, rank, source, limit)
            scales[first + j] = total


@inner
def _write_logs(y, frequencies, offset):
    """Turn projections, so many numbers of a row, into the logs of its features, of both signs if there is room."""
    for a in range(frequencies, y.size):
        y[a] = -y[a - frequencies]
    for a in range(offset.size):
        y[a] += offset[a]


@inner
def _exponentials(y, e):
    """Write e^(y_a - top) of a row, whose length is that of e; return the top and their sum."""
    width, zero = lanes(y), y.dtype.type(0)
    last, top = y.size // width * width, -largest_log(y)
    if last > 0:
        tops = load(y, 0)
        for a in range(width, last, width):
            logs = load(y, a)
            tops = where(logs > tops, logs, tops)
        store(tops, e, 0)
        for a in range(width):
            top = max(top, e[a])
    for a in range(last, y.size):
        top = max(top, y[a])
    total = zero
    if last > 0:
        sums = exponential(load(y, 0) - top)
        store(sums, e, 0)
        for a in range(width, last, width):
            terms = exponential(load(y, a) - top)
            store(terms, e, a)
            sums = sums + terms
        store(sums, e, last)  # there is room behind them
        for a in range(width):
            total += e[last + a]
    for a in range(last, y.size):
        e[a] = exponential(y[a] - top)
        total += e[a]
    return top, total


@inner_exact
def _write_less(y, top, log, target):
    """Write y - top - log: the last is lost beside a top of a far row."""
    for a in range(target.size):
        target[a] = (y[a] - top) - log


@compiled
def write_normalisers(omega_t, frequencies, offset, both, x, scales, shares, logs, chunk, low, high):
    """Write -log of the sum of features of blocks low to high of `chunk` rows of x, flat (n, d): those of `both` signs.

    Each feature's share in the sum, and the log of that, are written to `shares` and `logs`, flat (n, M), unless these
    are empty. omega_t is transposed in panels; `offset` has no entries where there is none. Projections of far rows are
    held.
    """
    x, omega_t, offset, shares, logs = whole(x), whole(omega_t), whole(offset), whole(shares), whole(logs)
    dim = x.size // scales.size
    features = 2 * frequencies if both else frequencies
    size, row = tile_rows(chunk, x), pad(features, lanes(x)) + lanes(x)
    packed, tile, e = aligned(size * dim, x), aligned(size * row, x), aligned(row, x)
    limit, one = largest_log(x), x.dtype.type(1)
    for first in range(low * chunk, min(high * chunk, scales.size), chunk):
        rows = min(chunk, scales.size - first)
        for j in range(rows):
            source, target = window(x, (first + j) * dim, dim), window(packed, j * dim, dim)
            for i in range(dim):
                target[i] = source[i]
        panel_product(packed, rows, dim, omega_t, 0, frequencies, tile, row)
        for j in range(rows):
            source, y = window(packed, j * dim, dim), window(tile, j * row, features)
            _write_logs(y, frequencies, offset)
            top, sum_ = _exponentials(y, e)
            log = math.log(sum_)
            total = -(top + log)
            if not abs(total) < limit and finite(source):
                project_far(omega_t, source, 0, limit, window(y, 0, frequencies))
                _write_logs(y, frequencies, offset)
                top, sum_ = _exponentials(y, e)
                log = math.log(sum_)
                total = -(top + log)
            scales[first + j] = total
            if shares.size > 0:
                target, factor = window(shares, (first + j) * features, features), one / sum_
                for a in range(features):
                    target[a] = e[a] * factor
            if logs.size > 0:
                _write_less(y, top, log, window(logs, (first + j) * features, features))
