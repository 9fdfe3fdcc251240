"""Features of a table in a file, written to another: a block of rows at a time, resumed where a run was killed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from shutil import copyfileobj
from time import monotonic
from typing import Any, BinaryIO
from zipfile import ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from kernattn._maps.record import fingerprint
from kernattn._runtime.checks import (
    checked_path,
    checked_target,
    instance_of,
    one_of,
    positive_integer,
    positive_number,
    shown,
)
from kernattn._runtime.deprecated import old_order
from kernattn._runtime.extras import bar, has_bar
from kernattn._runtime.files import lock, replace_text, replacing
from kernattn.errors import FileFormatError, ParameterError, ShapeError, StateMismatchError
from kernattn.features._base.map import FeatureMap
from kernattn.features._tables import DELIMITERS, SUFFIXES, Table, table

DTYPES = "float32", "float64"


@old_order(FeatureMap, "phi")
def transform_file(
    source: str | PathLike[str],
    out: str | PathLike[str],
    phi: FeatureMap,
    *,
    member: str | None = None,
    dtype: str | None = None,
    block: int = 4096,
    every: float = 10.0,
    progress: bool | None = False,
    backend: str | None = None,
) -> int:
    r"""Write :math:`\phi(x_i)` for every row x_i of a file to another file, and return the number of rows.

    Files are .npy, .npz, .csv or .tsv, each by its name; a first line of text that holds no numbers is taken for the
    names of columns. Text is written with digits enough to read the same numbers back. Memory is O(block (d + M)),
    whatever the number of rows. What is done lies beside `out`, in ``out.partial``, until the last row is written: a
    call that finds it there goes on, to the same bytes.

    Parameters
    ----------
    source : str or PathLike
        Rows (n, d) of finite real numbers.
    out : str or PathLike
        Where to, (n, M); in an .npz file the array is called "features". A file of that name is replaced at the end.
    phi : FeatureMap
        The map; of an asymmetric one, the queries' features.
    member : str, optional
        Which array of an .npz file with several.
    dtype : {None, "float32", "float64"}
        In which features are computed and written; None takes that of the rows, float64 of integers and of text.
    block : int
        Rows that are read and computed at a time.
    every : float
        Seconds between two writes of how far the work is.
    progress : bool or None
        Show rows and the time left on stderr; None shows them on a terminal only.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation makes the features.

    Returns
    -------
    int
        Number of rows.

    Raises
    ------
    ParameterError
        If an argument is not one of those allowed, or a row holds NaN or infinity, by its number.
    ShapeError, DTypeError, EmptyInputError
        If the file holds no rows of real numbers, or of another dimension than the map's.
    FileFormatError
        If the file is damaged, or a row of text holds no numbers; the message says which.
    StateMismatchError
        If what lies beside `out` is of another map, source or dtype, or another process is writing it.
    MissingExtra
        If progress is asked for and tqdm is not installed.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = ka.random_features(ka.kernels.Gaussian(), dim=3, num_features=16, rng=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rows, out = pathlib.Path(folder) / "rows.csv", pathlib.Path(folder) / "features.npy"
    ...     np.savetxt(rows, np.eye(3), delimiter=",")
    ...     ka.features.transform_file(rows, out, phi), np.load(out).shape
    (3, (3, 16))
    """
    instance_of("phi", phi, FeatureMap)
    positive_number("every", every)
    block = positive_integer("block", block)
    has_bar("transform_file", progress)
    place, target = checked_places(source, out)
    given = table(place, member)
    if phi.dim not in (None, given.columns):
        raise ShapeError(f"source must have d = {phi.dim} columns; {place} has {given.columns}")
    wanted = np.dtype(_usual_dtype(given.dtype) if dtype is None else one_of("dtype", dtype, DTYPES))
    about = {
        "map": fingerprint(phi),  # of the content: learnt maps carry the fingerprint of their draw
        "source": _identity(place, member),
        "shape": [given.rows, phi.num_features_of(given.columns)],
        "dtype": str(wanted),
        "block": block,
    }
    work = _Work(target.with_name(f"{target.name}.partial"), about)
    with work.opening() as file:
        for features in _compute(phi, given, wanted, work.done, block, progress, backend):
            work.append(file, features, every)
        work.flush(file)
        if _identity(place, member) != about["source"]:
            raise StateMismatchError(f"{place} changed while it was read; features of it are in no file")
        _deliver(work.path, target, given.rows)
        work.record.unlink()
    return given.rows


def checked_places(source: str | PathLike[str], out: str | PathLike[str]) -> tuple[Path, Path]:
    """Return both as paths; `out` is of a known kind, can be written, and is another file than `source`."""
    place, target = checked_path("source", source), checked_target("out", out)
    if target.suffix.lower() not in SUFFIXES:
        raise ParameterError(f"out must be a file of {', '.join(SUFFIXES)}; got {shown(str(target))}")
    if target.exists() and target.samefile(place):
        raise ParameterError(f"out must be another file than source; got {target} for both")
    return place, target


def _identity(path: Path, member: str | None) -> list[Any]:
    state = path.stat()
    return [str(path.resolve()), state.st_size, state.st_mtime_ns, member]


def _usual_dtype(dtype: np.dtype[Any]) -> str:
    return "float32" if dtype.newbyteorder("=") == np.float32 else "float64"


class _Work:
    """Rows that are done, in a .npy file that is not whole yet, and beside it how many, and of what."""

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.path, self.record, self._about = path, path.with_name(f"{path.name}.json"), about
        self.done, self._saved = 0, monotonic()

    @contextmanager
    def opening(self) -> Iterator[BinaryIO]:
        """Yield the file at the end of what is done; no other process writes it at the same time."""
        with open(self.path, "r+b", opener=_open_or_make) as file:
            if not lock(file.fileno()) or not _is_at(self.path, file):
                raise StateMismatchError(f"another process is writing to {self.path}")
            size = os.fstat(file.fileno()).st_size
            if not size:
                self.record.unlink(missing_ok=True)  # of a run whose rows are gone
            self.done = self._read_record() if size else 0
            npy.write_array_header_1_0(
                file, {"descr": self._about["dtype"], "fortran_order": False, "shape": tuple(self._about["shape"])}
            )
            width = self._about["shape"][1] * np.dtype(self._about["dtype"]).itemsize
            end = file.tell() + self.done * width
            if self.done and size < end:
                raise FileFormatError(f"{self.path} holds fewer rows than {self.record} says; remove it to begin anew")
            file.seek(end)
            file.truncate()
            try:
                yield file
            except BaseException as error:
                if self.record.exists():
                    error.add_note(f"what is done is in {self.path}, and the same call goes on from there")
                else:
                    self.path.unlink()
                raise

    def _read_record(self) -> int:
        if not self.record.exists():
            return 0
        try:
            record = json.loads(self.record.read_bytes())
            done = record.pop("done")
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise FileFormatError(f"{self.record} is damaged; remove it and {self.path} to begin anew") from error
        if record != self._about or type(done) is not int or not 0 <= done <= self._about["shape"][0]:
            raise StateMismatchError(
                f"{self.path} holds features of another map, source, dtype or block; remove it to begin anew"
            )
        return done

    def append(self, file: BinaryIO, features: NDArray[Any], every: float) -> None:
        """Write rows, and from time to time how many there are."""
        file.write(np.ascontiguousarray(features).data.cast("B"))
        self.done += len(features)
        if monotonic() - self._saved > every:
            self.flush(file)

    def flush(self, file: BinaryIO) -> None:
        """Return when what is done is on the disk, and says so."""
        file.flush()
        os.fsync(file.fileno())
        replace_text(self.record, json.dumps({**self._about, "done": self.done}))
        self._saved = monotonic()


def _open_or_make(path: str, flags: int) -> int:
    """Open a file, and make it where there is none; what another process writes to it stays."""
    return os.open(path, flags | os.O_CREAT, 0o666)


def _is_at(path: Path, file: BinaryIO) -> bool:
    """Say whether the file still has its name: a process that had it before may have put it into place."""
    return path.exists() and os.path.samestat(path.stat(), os.fstat(file.fileno()))


def _compute(
    phi: FeatureMap,
    given: Table,
    dtype: np.dtype[Any],
    done: int,
    block: int,
    progress: bool | None,
    backend: str | None,
) -> Iterator[NDArray[Any]]:
    """Yield the features of the rows after those that are done."""
    with bar("transform_file", progress, unit="row", unit_scale=True, total=given.rows, initial=done) as shown_rows:
        for rows in given.blocks(done, block):
            with np.errstate(over="ignore", under="ignore"):
                rows = rows.astype(dtype)
            bad = np.flatnonzero(~np.isfinite(rows).all(axis=1))
            if len(bad):
                raise ParameterError(
                    f"rows of source must be finite in {dtype}; NaN or infinity in row {done + bad[0]}"
                )
            yield phi(rows, backend=backend)
            done += len(rows)
            if shown_rows is not None:
                shown_rows.update(len(rows))


def _deliver(partial: Path, target: Path, rows: int) -> None:
    """Put the features into place, in the form that the name asks for."""
    kind = target.suffix.lower()
    if kind == ".npy":
        partial.replace(target)
        return
    with replacing(target) as file:
        if kind == ".npz":
            whole = ZipFile(file, "w")  # a member without the time of day: the same bytes at any time
            with (
                whole,
                partial.open("rb") as done,
                whole.open(ZipInfo("features.npy"), "w", force_zip64=True) as member,
            ):
                copyfileobj(done, member)
        else:
            features = np.load(partial, mmap_mode="r", allow_pickle=False)
            digits = "%.9g" if features.dtype == np.float32 else "%.17g"
            for first in range(0, rows, 1024):
                np.savetxt(file, features[first : first + 1024], digits, DELIMITERS[kind])
    partial.unlink()
