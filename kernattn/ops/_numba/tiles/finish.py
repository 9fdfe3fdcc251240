"""From projections to features that are written out."""

import numpy as np

from kernattn.ops._numba.codegen.compile import inner, inner_exact
from kernattn.ops._numba.codegen.elementary import exponential
from kernattn.ops._numba.codegen.memory import window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import load, store
from kernattn.ops._numba.far.clamped import far_scale, finite, largest_log, within
from kernattn.ops._numba.kinds import angular, positive_values, row_logs, row_values
from kernattn.ops._numba.tiles.stream import STREAMED, settle, stream


@inner
def limit_of(phi, like):
    """Return the bound of projections of far rows: angles and logs must be finite, other features may overflow."""
    return largest_log(like) if phi.per_feature or angular(phi.kind) else np.inf


@inner
def far_scales(phi, tile, rows, row, reach, scales):
    """Renew the log scales of rows (C, d) that are far: infinite where they are beyond the floats, or were held."""
    infinity = tile.dtype.type(np.inf)
    for j in range(rows):
        x = window(tile, j * row, phi.dim)
        if not within(x, reach) and finite(x):
            if phi.weights.size > 0:
                scales[j] = far_scale(phi.weights, x, np.inf)
            elif abs(scales[j]) >= largest_log(x):
                scales[j] = infinity if scales[j] > 0 else -infinity


@inner
def _exponentials(tile, rows, row, count, scales, offset):
    """Turn logs of features (C, M) into features."""
    width = lanes(tile)
    last = count // width * width
    for j in range(rows):
        x, scale = window(tile, j * row, count), scales[j]
        for a in range(0, last, width):
            store(exponential((load(x, a) + scale) + load(offset, a)), x, a)
        for a in range(last, count):
            x[a] = exponential((x[a] + scale) + offset[a])


@inner_exact
def _scaled_values(phi, tile, at, begin, count, scale, parts):
    """Turn projections of one token into features; e^scale comes in halves where it may overflow before they do."""
    zero, whole = tile.dtype.type(0), scale < 70  # an amplitude is at most 2^16
    row_values(phi, tile, at, begin, count, phi.amplitude * exponential(scale if whole else zero))
    if not whole:
        x, half = window(tile, at, parts * count), exponential(scale / 2)
        for a in range(parts * count):
            x[a] = zero if x[a] == zero else x[a] * half * half


@inner
def finish_numbers(phi, x, at, rows, tile, row, out, out_at, out_row):
    """Write the features of numbers of x one by one, without projections or scales: rows that adjoin are one row."""
    count, streamed = phi.dim, out.size * out.itemsize >= STREAMED
    if out_row == count:
        count, rows = rows * count, 1
    for j in range(rows):
        for begin in range(0, count, row):
            size = min(row, count - begin)
            source, target = window(x, at + j * count + begin, size), window(out, out_at + j * out_row + begin, size)
            values = window(tile, 0, size) if streamed else target
            positive_values(phi.kind, source, values, phi.amplitude)
            if streamed:
                stream(target, values)
    if streamed:
        settle()


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
            _scaled_values(phi, tile, j * row, begin, count, scales[j], parts)
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
