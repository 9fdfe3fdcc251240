"""From projections to features that are written out."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from kernattn.ops._numba.compile import inner, inner_exact
from kernattn.ops._numba.elementary import exponential
from kernattn.ops._numba.held import far_scale, finite, largest_log, within
from kernattn.ops._numba.kinds import angular, row_logs, row_values
from kernattn.ops._numba.memory import window
from kernattn.ops._numba.stream import STREAMED, settle, stream

__all__ = ["far_scales", "finish_features", "limit_of"]


@inner
def limit_of(phi, like):
    """Return what projections of far rows are held at: angles and logs must be finite, other features may overflow."""
    return largest_log(like) if phi.per_feature or angular(phi.kind) else np.inf


@inner
def far_scales(phi, tile, rows, row, reach, scales):
    """Renew the log scales of rows (C, d) that are far: infinite where they are beyond the floats, or were held."""
    if reach == 0 or within(window(tile, 0, rows * row), reach):
        return
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
    for j in range(rows):
        x, scale = window(tile, j * row, count), scales[j]
        for a in range(count):
            x[a] = exponential((x[a] + scale) + offset[a])


@inner_exact
def _scaled_values(phi, tile, at, begin, count, scale, parts):
    """Turn projections of one token into features; e^scale comes in halves where it may overflow before they do."""
    zero = tile.dtype.type(0)
    if scale < 70:  # an amplitude is at most 2^16
        row_values(phi, tile, at, begin, count, phi.amplitude * exponential(scale))
        return
    row_values(phi, tile, at, begin, count, phi.amplitude)
    x, half = window(tile, at, parts * count), exponential(scale / 2)
    for a in range(parts * count):
        x[a] = zero if x[a] == zero else x[a] * half * half


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
