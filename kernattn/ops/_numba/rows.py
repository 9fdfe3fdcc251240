"""Features of rows, written out."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from kernattn.ops._numba.compile import compiled, inner
from kernattn.ops._numba.linear import aligned, project_keys, tile_rows
from kernattn.ops._numba.products import lanes, pad
from kernattn.ops._numba.tiles import EXP, EXP_PAIR, key_exponents, key_values, negated
from kernattn.ops._numba.windows import whole, window

__all__ = ["finish_features", "write_features"]


@inner
def finish_features(kind, tile, rows, row, frequencies, features, offset, amplitude, scales, zeros, shift, out, first):
    """Turn projections (C, D) in a tile into features, and write these to rows of out from `first` on."""
    if kind >= EXP:
        if kind == EXP_PAIR:
            for j in range(rows):
                negated(tile, j * row, frequencies, j * row + frequencies)
        key_exponents(tile, rows, row, features, scales, offset, zeros, shift)
    else:
        key_values(kind, tile, rows, frequencies, row, offset, amplitude, scales, zeros[0])
    for j in range(rows):
        source, target = window(tile, j * row, features), window(out, (first + j) * features, features)
        for a in range(features):
            target[a] = source[a]


@compiled
def write_features(
    kind, omega_t, weights, offset, amplitude, dim, frequencies, features, x, n, out, no_mask, chunk, low, high
):
    """Write the features of blocks low to high of `chunk` rows of x, flat (n, d), to out, flat (n, M)."""
    omega_t, weights, offset, x = whole(omega_t), whole(weights), whole(offset), whole(x)
    row = pad(max(features, frequencies), lanes(x)) + lanes(x)
    size = tile_rows(chunk, x)
    tile, packed, scales = aligned(size * row, x), aligned(size * dim, x), aligned(size, x)
    shift, zeros = aligned(features, x), aligned(features, x)
    no_scales = window(x, 0, 0)
    for block in range(low, high):
        first = block * chunk
        rows = min(chunk, n - first)
        project_keys(omega_t, weights, x, first * dim, rows, dim, no_mask, 0, no_scales, 0, packed, tile, row, scales)
        finish_features(
            kind, tile, rows, row, frequencies, features, offset, amplitude, scales, zeros, shift, out, first
        )
