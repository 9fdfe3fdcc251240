"""Features of rows, written out."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from kernattn.ops._numba.compile import compiled, inner
from kernattn.ops._numba.linear import aligned, tile_rows
from kernattn.ops._numba.products import lanes, pad, panel_product
from kernattn.ops._numba.tiles import EXP, EXP_PAIR, key_exponents, key_values, load_rows, negated, row_scales
from kernattn.ops._numba.windows import whole, window

__all__ = ["finish_features", "write_features"]


@inner
def finish_features(
    kind, tile, rows, row, count, begin, frequencies, features, offset, amplitude, scales, zeros, shift, out, first
):  # fmt: skip
    """Turn projections begin to begin + count, (C, count), into features in rows of out from `first` on."""
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
    for j in range(rows):
        for part in range(parts):
            source = window(tile, j * row + part * count, count)
            target = window(out, (first + j) * features + part * frequencies + begin, count)
            for a in range(count):
                target[a] = source[a]


@compiled
def write_features(
    kind, omega_t, weights, offset, amplitude, dim, frequencies, features, x, n, out, no_mask, chunk, span, low, high
):  # fmt: skip
    """Write the features of blocks low to high of `chunk` rows of x, flat (n, d), to out, flat (n, M).

    `span` frequencies at a time, so that a block of features stays in cache until it is written.
    """
    omega_t, weights, offset, x = whole(omega_t), whole(weights), whole(offset), whole(x)
    row = 2 * pad(span, lanes(x)) + lanes(x)
    size = tile_rows(chunk, x)
    tile, packed, scales = aligned(size * row, x), aligned(size * dim, x), aligned(size, x)
    shift, zeros = aligned(span, x), aligned(span, x)
    no_scales = window(x, 0, 0)
    for block in range(low, high):
        first = block * chunk
        rows = min(chunk, n - first)
        load_rows(x, first * dim, rows, dim, no_mask, 0, packed, dim)
        row_scales(weights, packed, rows, dim, dim, no_scales, 0, no_mask, 0, scales)
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
                out, first,
            )  # fmt: skip
