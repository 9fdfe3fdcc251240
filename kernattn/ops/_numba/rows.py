"""Features of rows, written out."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from kernattn.ops._numba.compile import compiled, inner
from kernattn.ops._numba.elementary import exponential
from kernattn.ops._numba.kinds import row_logs, row_values
from kernattn.ops._numba.linear import aligned, tile_rows
from kernattn.ops._numba.plans import unpacked
from kernattn.ops._numba.products import lanes, pad, panel_product
from kernattn.ops._numba.stream import STREAMED, settle, stream
from kernattn.ops._numba.tiles import load_rows, row_scales
from kernattn.ops._numba.windows import whole, window

__all__ = ["block_features", "finish_features", "span_row", "write_features"]


@inner
def _exponentials(tile, rows, row, count, scales, offset):
    """Turn logs of features (C, M) into features."""
    for j in range(rows):
        x, scale = window(tile, j * row, count), scales[j]
        for a in range(count):
            x[a] = exponential((x[a] + scale) + offset[a])


@inner
def finish_features(phi, tile, rows, row, begin, count, scales, out, out_at, out_row):
    """Turn projections begin to begin + count, (C, count), into features in rows of out."""
    frequencies, parts = phi.frequencies, phi.features // phi.frequencies
    if phi.per_feature:
        row_logs(phi, tile, rows, row, count)
        for part in range(parts):
            logs = window(tile, part * count, tile.size - part * count)
            offsets = window(phi.offset, part * frequencies + begin, count)
            _exponentials(logs, rows, row, count, scales, offsets)
    else:
        for j in range(rows):
            factor = phi.amplitude * exponential(scales[j])
            row_values(phi, tile, j * row, begin, count, factor)
    streamed = out.size * out.itemsize >= STREAMED
    for j in range(rows):
        for part in range(parts):
            source = window(tile, j * row + part * count, count)
            target = window(out, out_at + j * out_row + part * frequencies + begin, count)
            if streamed:
                stream(target, source)
            else:
                for a in range(count):
                    target[a] = source[a]
    if streamed:
        settle()


@inner
def block_features(
    phi, x, at, rows, given, given_at, no_mask, span, packed, tile, row, scales, out, out_at, out_row,
):  # fmt: skip
    """Write the features of a block of rows, `span` frequencies at a time: they stay in cache until written."""
    dim, frequencies = phi.dim, phi.frequencies
    load_rows(x, at, rows, dim, no_mask, 0, packed, dim)
    row_scales(phi.weights, packed, rows, dim, dim, given, given_at, no_mask, 0, scales)
    for begin in range(0, frequencies, span):
        count = min(span, frequencies - begin)
        if phi.omega_t.size > 0:
            panel_product(packed, rows, dim, phi.omega_t, begin, count, tile, row)
        else:
            for j in range(rows):
                source, target = window(packed, j * dim + begin, count), window(tile, j * row, count)
                for i in range(count):
                    target[i] = source[i]
        finish_features(phi, tile, rows, row, begin, count, scales, out, out_at, out_row)


@inner
def span_row(span, like):
    """Return the row length of a tile for the features of `span` frequencies."""
    return 2 * pad(span, lanes(like)) + lanes(like)


@compiled
def write_features(numbers, constants, x, given, n, out, no_mask, chunk, span, low, high):
    """Write the features of blocks low to high of `chunk` rows of x, flat (n, d), to out, flat (n, M)."""
    phi, x, given = unpacked(numbers, constants), whole(x), whole(given)
    dim, features = phi.dim, phi.features
    row, size = span_row(span, x), tile_rows(chunk, x)
    tile, packed, scales = aligned(size * row, x), aligned(size * dim, x), aligned(size, x)
    for first in range(low * chunk, min(high * chunk, n), chunk):
        block_features(
            phi, x, first * dim, min(chunk, n - first), given, first, no_mask, span, packed, tile, row, scales,
            out, first * features, features,
        )  # fmt: skip
