"""From projections to features that are written out."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from kernattn.ops._numba.compile import inner
from kernattn.ops._numba.elementary import exponential
from kernattn.ops._numba.kinds import row_logs, row_values
from kernattn.ops._numba.memory import window
from kernattn.ops._numba.stream import STREAMED, settle, stream

__all__ = ["finish_features"]


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
