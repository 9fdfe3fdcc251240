"""Rows of a file of one's own."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn.errors import FileFormatError, ParameterError, ShapeError
from kernattn.features._tables import table

MOST = 2**26  # numbers that are held


@lru_cache(maxsize=1)
def read_rows(path: Path) -> Float64:
    """Return the rows (n, d) of a .npy, .npz, .csv or .tsv file, finite numbers that differ somewhere."""
    try:
        source = table(path)
    except FileNotFoundError as error:
        raise FileFormatError(f"{path} does not exist") from error
    if source.rows * source.columns > MOST:
        raise ShapeError(
            f"{path} must hold at most {MOST} numbers for a study; it has {source.rows} rows of {source.columns}"
        )
    x = np.concatenate([np.asarray(block, np.float64) for block in source.blocks(0, source.rows)])
    if not np.isfinite(x).all():
        raise ParameterError(
            f"{path} must hold finite numbers; row {int(np.argwhere(~np.isfinite(x))[0, 0])} has others"
        )
    if not np.ptp(x, axis=0).any():
        raise ParameterError(f"{path} must hold rows that differ; all are alike")
    x.flags.writeable = False
    return x


def name_rows(path: Path) -> str:
    """Return the name of the rows of a file in records: two contents have two names."""
    x = read_rows(path)
    return f"{path.stem}-{hashlib.sha256(x.tobytes()).hexdigest()[:8]}"


def draw_rows(path: Path, count: int, seed: int) -> Float64:
    """Return so many rows of a file in random order."""
    x = read_rows(path)
    if len(x) < count:
        raise ShapeError(f"{path} must hold at least {count} rows for this study; got {len(x)}")
    return x[np.random.default_rng(seed).permutation(len(x))[:count]]
