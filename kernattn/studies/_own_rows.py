"""Rows of a file of one's own."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64, frozen
from kernattn.errors import FileFormatError, ParameterError, ShapeError
from kernattn.features._tables import table

MOST = 2**26  # numbers that are held
TRAIN, FEWEST = 400, 64  # rows to learn from at most, and rows at least


class Targets(NamedTuple):
    """Rows (n, d) and targets (n, 1) of a file, their name, and how many of them are to learn from."""

    x: Float64
    y: Float64
    name: str
    train: int


class OwnRows(NamedTuple):
    """Rows (n, d) of a file, as it was when it was read: whoever changes it meanwhile changes no study."""

    path: Path
    x: Float64

    @property
    def name(self) -> str:
        """What records call them: two contents have two names."""
        return f"{self.path.stem}-{hashlib.sha256(self.x.tobytes()).hexdigest()[:8]}"

    def draw(self, count: int, seed: int) -> Float64:
        """Return so many of them in random order."""
        if len(self.x) < count:
            raise ShapeError(f"{self.path} must hold at least {count} rows for this study; got {len(self.x)}")
        return self.x[np.random.default_rng(seed).permutation(len(self.x))[:count]]


def own_rows(path: Path) -> OwnRows:
    """Return the rows of a file, as `read_rows` does."""
    return OwnRows(path, read_rows(path))


def read_rows(path: Path) -> Float64:
    """Return the rows (n, d) of a .npy, .npz, .csv or .tsv file, finite numbers that differ somewhere."""
    try:
        source = table(path, called="data")
        if source.rows * source.columns > MOST:
            raise ShapeError(
                f"{path} must hold at most {MOST} numbers for a study; it has {source.rows} rows of {source.columns}"
            )
        x = np.concatenate([np.asarray(block, np.float64) for block in source.blocks(0, source.rows)])
    except FileNotFoundError as error:
        raise FileFormatError(f"{path} does not exist") from error
    except OSError as error:
        raise FileFormatError(f"{path} cannot be read: {error.strerror or error}") from error
    return frozen(_check_finite(path, x))


def _check_finite(path: Path, x: Float64) -> Float64:
    if not np.isfinite(x).all():
        raise ParameterError(
            f"{path} must hold finite numbers; row {int(np.argwhere(~np.isfinite(x))[0, 0])} has others"
        )
    if not np.ptp(x, axis=0).any():
        raise ParameterError(f"{path} must hold rows that differ; all are alike")
    return x


def read_arrays(path: Path, names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Return the arrays of an .npz file, which must have these names."""
    *most, last = names
    wanted = f"{', '.join(most)} and {last}"
    try:
        with path.open("rb") as stream:
            file = np.load(stream, allow_pickle=False)
            if isinstance(file, np.ndarray):
                raise FileFormatError(f"{path} holds a single array; an .npz with {wanted} is needed")
            if sorted(file.files) != sorted(names):
                raise FileFormatError(
                    f"{path} must hold the arrays {wanted} and no others; it holds {', '.join(file.files) or 'none'}"
                )
            return {name: file[name] for name in names}
    except FileNotFoundError as error:
        raise FileFormatError(f"{path} does not exist") from error
    except FileFormatError:
        raise
    except (OSError, EOFError, ValueError, BadZipFile, zlib.error) as error:
        why = "no file of numpy.savez" if "contains pickled" in str(error) else error  # NumPy's word for any text
        raise FileFormatError(f"{path} cannot be read as an .npz of plain numbers: {why}") from error


def read_targets(path: Path) -> Targets:
    """Return rows and targets of a file: x and y of an .npz, else the columns before the last one, and that one."""
    if path.suffix.lower() == ".npz":
        x, y = (_read_numbers(path, name, array) for name, array in read_arrays(path, ("x", "y")).items())
    else:
        rows = read_rows(path)
        if rows.shape[1] < 2:
            raise ShapeError(f"{path} must hold rows and, in the last column, targets; it has one column")
        x, y = rows[:, :-1], rows[:, -1:]
    if len(x) != len(y) or y.shape[1] != 1:
        raise ShapeError(f"{path} must hold x (n, d) and y (n,); got shapes {x.shape} and {y.shape}")
    if len(x) < FEWEST:
        raise ShapeError(f"{path} must hold at least {FEWEST} rows for this study; got {len(x)}")
    if not np.ptp(y):
        raise ParameterError(f"{path} must hold targets that differ; all are {y[0, 0]:g}")
    digest = hashlib.sha256(x.tobytes() + y.tobytes()).hexdigest()[:8]
    return Targets(x, y, f"{path.stem}-{digest}", min(TRAIN, 3 * len(x) // 4))


def _read_numbers(path: Path, name: str, array: NDArray[Any]) -> Float64:
    """Return an array (n,) or (n, d) as (n, d)."""
    if array.dtype.kind not in "fiu" or array.ndim not in (1, 2) or 0 in array.shape:
        raise ShapeError(
            f"{path} must hold numbers x (n, d) and y (n,); {name} has shape {array.shape} and dtype {array.dtype}"
        )
    return _check_finite(path, array.astype(np.float64).reshape(len(array), -1))
