"""Features of rows, written out."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from kernattn.ops._numba.compile import compiled, inner
from kernattn.ops._numba.linear import aligned, tile_rows
from kernattn.ops._numba.products import lanes, pad, panel_product
from kernattn.ops._numba.stream import STREAMED, settle, stream
from kernattn.ops._numba.tiles import EXP, EXP_PAIR, key_exponents, key_values, load_rows, negated, row_scales
from kernattn.ops._numba.windows import whole, window

__all__ = ["block_features", "finish_features", "span_row", "write_features"]


@inner
def finish_features(
    kind, tile, rows, row, count, begin, frequencies, features, offset, amplitude, scales, zeros, shift,
    out, out_at, out_row,
):  # fmt: skip
    """Turn projections begin to begin + count, (C, count), into features in rows of out."""
    parts = features // frequencies
    if kind >= EXP:
        if kind == EXP_PAIR:
            for j in range(rows):
                negated(tile, j * row, count, j * row + count)
        for part in range(parts):
            logs = window(tile, part * count, tile.size - part * count)
            offsets = window(offset, part * frequencies + begin, count)
            key_exponents(logs, rows, row, count, scales, offsets, zeros, shift)
    else:
        key_values(kind, tile, rows, count, row, window(offset, begin, count), amplitude, scales, zeros[0])
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
    kind, omega_t, weights, offset, amplitude, dim, frequencies, features, x, at, rows, no_mask, span,
    packed, tile, row, scales, shift, zeros, out, out_at, out_row,
):  # fmt: skip
    """Write the features of a block of rows, `span` frequencies at a time: they stay in cache until written."""
    load_rows(x, at, rows, dim, no_mask, 0, packed, dim)
    row_scales(weights, packed, rows, dim, dim, window(x, 0, 0), 0, no_mask, 0, scales)
    for begin in range(0, frequencies, span):
        count = min(span, frequencies - begin)
        if omega_t.size > 0:
            panel_product(packed, rows, dim, omega_t, begin, count, tile, row)
        else:
            for j in range(rows):
                source, target = window(packed, j * dim + begin, count), window(tile, j * row, count)
                for i in range(count):
                    target[i] = source[i]
        finish_features(
            kind, tile, rows, row, count, begin, frequencies, features, offset, amplitude, scales, zeros, shift,
            out, out_at, out_row,
        )  # fmt: skip


@inner
def span_row(span, like):
    """Return the row length of a tile for the features of `span` frequencies."""
    return 2 * pad(span, lanes(like)) + lanes(like)


@compiled
def write_features(
    kind, omega_t, weights, offset, amplitude, dim, frequencies, features, x, n, out, no_mask, chunk, span, low, high
):  # fmt: skip
    """Write the features of blocks low to high of `chunk` rows of x, flat (n, d), to out, flat (n, M)."""
    omega_t, weights, offset, x = whole(omega_t), whole(weights), whole(offset), whole(x)
    row, size = span_row(span, x), tile_rows(chunk, x)
    tile, packed, scales = aligned(size * row, x), aligned(size * dim, x), aligned(size, x)
    shift, zeros = aligned(span, x), aligned(span, x)
    for first in range(low * chunk, min(high * chunk, n), chunk):
        block_features(
            kind, omega_t, weights, offset, amplitude, dim, frequencies, features, x, first * dim,
            min(chunk, n - first), no_mask, span, packed, tile, row, scales, shift, zeros,
            out, first * features, features,
        )  # fmt: skip
