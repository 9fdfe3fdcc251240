"""Tables of numbers in files, (n, d), of which a block of rows is read at a time and no more is held."""

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple
from zipfile import ZipFile

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from kernattn._runtime.checks import shown
from kernattn.errors import DTypeError, EmptyInputError, FileFormatError, KernattnError, ParameterError, ShapeError

DELIMITERS = {".csv": ",", ".tsv": "\t"}
SUFFIXES = (".npy", ".npz", *DELIMITERS)


class Table(NamedTuple):
    """A file of n rows of d numbers."""

    rows: int
    columns: int
    dtype: np.dtype[Any]
    blocks: Callable[[int, int], Iterator[NDArray[Any]]]  # the first row, and how many are read at a time


def table(path: Path, member: str | None = None, called: str = "source") -> Table:
    """Return the table that a file holds; of an .npz file with several, the one of that name.

    `called` is the argument that errors name; only a source has a member beside it.
    """
    kind = path.suffix.lower()
    if kind not in SUFFIXES:
        raise ParameterError(f"{called} must be a file of {', '.join(SUFFIXES)}; got {shown(str(path))}")
    if member is not None and kind != ".npz":
        raise ParameterError(f"member names an array of an .npz file; got {shown(member)} for {path}")
    if path.exists() and not path.is_file():
        raise ParameterError(f"{called} must be a file; {path} is a {'directory' if path.is_dir() else 'device'}")
    if kind in DELIMITERS:
        return _text(path, DELIMITERS[kind])
    if kind == ".npy":
        return _array(path)
    return _read_packed(
        path, member, "name one as member, or save it alone" if called == "source" else "save one alone"
    )


@contextmanager
def _open(path: Path, mode: str = "rb", encoding: str | None = None) -> Iterator[IO[Any]]:
    """Yield a file; whatever is wrong with what it holds is a FileFormatError."""
    with path.open(mode, encoding=encoding) as file:
        try:
            yield file
        except KernattnError:
            raise
        except Exception as error:  # a damaged file makes the readers of zip, npy and text raise anything
            raise FileFormatError(f"{path} is damaged or not a {path.suffix.lower()} file: {error}") from error


def _array(path: Path) -> Table:
    with _open(path) as file:
        shape, fortran, dtype = _header(file)
        start = file.tell()
    rows, columns = _check_table(path, shape, dtype)
    if path.stat().st_size < start + rows * columns * dtype.itemsize:
        raise FileFormatError(f"{path} ends too soon: {shape} numbers of {dtype} need more bytes")
    if fortran:
        whole = np.load(path, mmap_mode="r", allow_pickle=False)
        return Table(rows, columns, dtype, lambda first, size: (whole[i : i + size] for i in range(first, rows, size)))

    def blocks(first: int, size: int) -> Iterator[NDArray[Any]]:
        with _open(path) as file:
            yield from _read(file, start, (rows, columns), dtype, first, size)

    return Table(rows, columns, dtype, blocks)


def _read_packed(path: Path, member: str | None, instead: str) -> Table:
    with _open(path) as whole, ZipFile(whole) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
        if member is None and len(names) != 1:
            raise ParameterError(f"{path} holds the arrays {', '.join(names)}: {instead}")
        name = names[0] if member is None else member
        if name not in names:
            raise ParameterError(f"member must be one of {', '.join(names)}, the arrays of {path}; got {shown(name)}")
        with archive.open(f"{name}.npy") as file:
            shape, fortran, dtype = _header(file)
            start = file.tell()
        size = archive.getinfo(f"{name}.npy").file_size
    rows, columns = _check_table(path, shape, dtype)
    if size < start + rows * columns * dtype.itemsize:
        raise FileFormatError(f"{name} in {path} ends too soon: {shape} numbers of {dtype} need more bytes")
    if fortran:
        raise ParameterError(f"{name} in {path} lies column by column: save np.ascontiguousarray of it")

    def blocks(first: int, size: int) -> Iterator[NDArray[Any]]:
        with _open(path) as whole, ZipFile(whole) as archive, archive.open(f"{name}.npy") as file:
            yield from _read(file, start, (rows, columns), dtype, first, size)

    return Table(rows, columns, dtype, blocks)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    version = npy.read_magic(file)
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if any(isinstance(length, bool) or length < 0 for length in shape):
        raise FileFormatError(f"an array in {file.name} has the shape {shape}")
    return shape, fortran, dtype


def _check_table(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return n and d."""
    if dtype.kind not in "fiu":
        raise DTypeError(f"source must hold real numbers; {path} holds {dtype}")
    if len(shape) != 2:
        raise ShapeError(f"source must hold rows (n, d); {path} holds an array of shape {shape}")
    if 0 in shape:
        raise EmptyInputError(f"source must hold rows and columns; {path} holds an array of shape {shape}")
    return shape[0], shape[1]


def _read(
    file: IO[bytes], start: int, shape: tuple[int, int], dtype: np.dtype[Any], first: int, size: int
) -> Iterator[NDArray[Any]]:
    width = shape[1] * dtype.itemsize
    file.seek(start + first * width)
    for i in range(first, shape[0], size):
        content = file.read(min(size, shape[0] - i) * width)
        if len(content) < min(size, shape[0] - i) * width:
            raise FileFormatError(f"{file.name} ends too soon, in row {i + len(content) // width}")
        yield np.frombuffer(content, dtype).reshape(-1, shape[1])


def _text(path: Path, delimiter: str) -> Table:
    """Return a table of one row a line; a first line without a number is a header."""
    with _open(path, "r", "utf-8-sig") as file:
        top = next((line for line in file if line.strip()), "")
        rest = sum(1 for line in file if line.strip())
        names = next(csv.reader([top], delimiter=delimiter))
    header = not any(map(_is_number, names))
    if rest + (not header) == 0:
        raise EmptyInputError(f"source must hold rows; {path} holds none")
    rows = rest + (not header)

    def blocks(first: int, size: int) -> Iterator[NDArray[Any]]:
        with _open(path, "r", "utf-8-sig") as file:
            lines = islice((line for line in file if line.strip()), first + header, None)
            for i in range(first, rows, size):
                yield _numbers(path, list(islice(lines, size)), delimiter, len(names), i)

    return Table(rows, len(names), np.dtype(np.float64), blocks)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text and text.strip().isascii()  # what Python takes, NumPy does not


def _numbers(path: Path, lines: list[str], delimiter: str, columns: int, first: int) -> NDArray[Any]:
    for i, line in enumerate(lines):
        if line.count(delimiter) != columns - 1:
            raise FileFormatError(f"row {first + i} of {path} has {line.count(delimiter) + 1} columns, not {columns}")
    try:
        return np.loadtxt(lines, delimiter=delimiter, comments=None, ndmin=2)
    except ValueError:
        for i, line in enumerate(lines):
            for name, part in enumerate(line.split(delimiter)):
                if not _is_number(part):
                    raise FileFormatError(
                        f"row {first + i} of {path} holds {shown(part.strip())} in column {name}, which is no number"
                    ) from None
        raise
