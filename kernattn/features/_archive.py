"""Arrays in an .npz file that nobody vouches for: nothing is read before its name, its size and its type are known."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from os import PathLike
from typing import IO, Any, BinaryIO
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import checked_path, checked_target, shown
from kernattn._runtime.files import replacing
from kernattn.errors import FileFormatError, KernattnError, ParameterError

FORMAT = "kernattn map 1"
HEADER = 1 << 20  # characters of a description, at most
AT_ONCE = 1 << 20  # bytes that are read at a time, and the most that the list of members may have
DTYPES = "float64", "int64", "int8"


class _Careful:
    """A file of which only so much is read at a time: ZipFile reads the list of its members in one piece."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.seekable, self.close = file.seek, file.tell, file.seekable, file.close

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(AT_ONCE + 1 if size < 0 else min(size, AT_ONCE + 1))
        if len(data) > AT_ONCE:
            raise FileFormatError(f"its list of members is longer than {AT_ONCE} bytes")
        return data


class Archive:
    """The members of a file: a description, and the arrays that it names, each of which may be taken once."""

    def __init__(self, zipped: ZipFile, size: int) -> None:
        self._zip = zipped
        self._left: dict[str, ZipInfo] = {}
        for info in zipped.infolist():
            if info.filename in self._left:
                raise FileFormatError(f"it has two members called {shown(info.filename)}")
            if info.compress_type != ZIP_STORED or info.compress_size != info.file_size or info.flag_bits & 1:
                raise FileFormatError(f"its member {shown(info.filename)} is compressed or encrypted")
            self._left[info.filename] = info
        claimed = sum(info.file_size for info in self._left.values())
        if claimed > size:
            raise FileFormatError(f"its members claim {claimed} bytes, more than the {size} of the file")

    def text(self, name: str, longest: int) -> str:
        """Take a string of so many characters at most."""

        def check(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
            if dtype.kind != "U" or shape or dtype.itemsize > 4 * longest:
                raise FileFormatError(f"{name} must be a string of at most {longest} characters; got {dtype}{shape}")

        return str(self._take(name, check))

    def array(self, name: str, dtypes: tuple[str, ...] = DTYPES) -> NDArray[Any]:
        """Take an array of one of these dtypes."""

        def check(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
            if dtype not in map(np.dtype, dtypes) or not shape or min(shape) < 1:
                allowed = ", ".join(dtypes)
                raise FileFormatError(f"{name} must be an array of {allowed}, no axis empty; got {dtype}{shape}")

        return self._take(name, check)

    def check_all_taken(self) -> None:
        """Raise where there are members that nothing named."""
        if self._left:
            raise FileFormatError(f"it has members that its description does not name: {', '.join(self._left)[:200]}")

    def _take(self, name: str, check: Any) -> NDArray[Any]:
        if f"{name}.npy" not in self._left:
            raise FileFormatError(f"it has no member {shown(name)}, or names it twice")
        info = self._left.pop(f"{name}.npy")
        with self._zip.open(info) as file:
            shape, fortran, dtype = _header(file)
            check(dtype, shape)
            size = prod(shape) * dtype.itemsize
            if info.file_size - file.tell() != size:
                raise FileFormatError(f"{name} must hold {size} bytes; got {info.file_size - file.tell()}")
            values = np.empty(prod(shape), dtype)
            _fill(file, values)
        return values.reshape(shape, order="F" if fortran else "C")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    if npy.read_magic(file) != (1, 0):
        raise FileFormatError("an array's header is not of version 1.0")
    shape, fortran, dtype = npy.read_array_header_1_0(file)
    if any(isinstance(length, bool) or length < 0 for length in shape):
        raise FileFormatError(f"an array has the shape {shape}")
    return shape, bool(fortran), dtype


def _fill(file: IO[bytes], values: NDArray[Any]) -> None:
    raw, start = values.view(np.uint8) if values.itemsize == 1 else values.view((np.uint8, values.itemsize)), 0
    raw = raw.reshape(-1)
    while start < len(raw):
        part = file.read(min(AT_ONCE // 2, len(raw) - start))
        if not part:
            raise FileFormatError("an array ends too soon")
        raw[start : start + len(part)] = np.frombuffer(part, np.uint8)
        start += len(part)


@contextmanager
def opened(path: str | PathLike[str]) -> Iterator[Archive]:
    """Yield the members of a file; whatever is wrong with it is a FileFormatError."""
    place = checked_path("path", path)
    if not stat.S_ISREG(place.stat().st_mode):
        raise FileFormatError(f"{place} is a {'directory' if place.is_dir() else 'device'}, not a file")
    with place.open("rb") as raw:
        try:
            with ZipFile(_Careful(raw)) as zipped:
                yield Archive(zipped, os.fstat(raw.fileno()).st_size)
        except KernattnError as error:
            raise FileFormatError(f"{place}: {error}") from error
        except Exception as error:  # a damaged file makes the readers of zip, npy and JSON raise anything
            raise FileFormatError(f"{place} is damaged or not a kernattn file: {error}") from error


def write(path: str | PathLike[str], header: str, arrays: dict[str, Float64], kind: str = FORMAT) -> None:
    """Write a description and its arrays to `path`, whole or not at all."""
    place = checked_target("path", path)
    if len(header) > HEADER:
        raise ParameterError(f"the map cannot be saved: its description has {len(header)} characters, over {HEADER}")
    with replacing(place) as file:
        np.savez(file, format=np.array(kind), header=np.array(header), **arrays)  # type: ignore[arg-type]
