"""Files that nobody vouches for: nothing is read before its name, its size and its type are known.

Maps, moments and parameters are archives: .npz files without pickle, of a kind ("kernattn map 1"), a header in JSON,
and the arrays that the header asks for, each of which is taken once. A room says which fields it expects; whatever is
wrong with a file is a `FileFormatError` that names it.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from os import PathLike
from pathlib import Path
from typing import IO, Any, BinaryIO
from zipfile import ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from kernattn._runtime.checks import checked_path, checked_target, shown
from kernattn._runtime.extras import require
from kernattn._runtime.files import replacing
from kernattn.errors import FileFormatError, KernattnError, ParameterError, StateMismatchError

LONGEST = 1 << 20  # characters of a header, at most
AT_ONCE = 1 << 20  # bytes that are read at a time, and the most that the list of members may have
DTYPES = "float64", "int64", "int8"
SAFETENSORS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def save_archive(path: str | PathLike[str], kind: str, header: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write an archive to `path`, whole or not at all."""
    place, text = checked_target("path", path), json.dumps(header)
    if len(text) > LONGEST:
        raise ParameterError(f"what has a description of {len(text)} characters cannot be saved: {LONGEST} at most")
    with replacing(place) as file:
        np.savez(file, format=np.array(kind), header=np.array(text), **arrays)  # type: ignore[arg-type]


@contextmanager
def open_archive(path: str | PathLike[str], kind: str) -> Iterator[Archive]:
    """Yield an archive of this kind, all of whose arrays must be taken before it is closed."""
    place = checked_path("path", path)
    with reading(place, "a kernattn file"), place.open("rb") as raw:
        try:
            with ZipFile(_BoundedReads(raw)) as zipped:
                archive = Archive(zipped, os.fstat(raw.fileno()).st_size, kind)
                yield archive
                archive.check_all_taken()
        except StateMismatchError:
            raise
        except KernattnError as error:
            raise FileFormatError(f"{place}: {error}") from error


@contextmanager
def reading(path: Path, what: str) -> Iterator[None]:
    """Turn whatever the damage of a file raises into an error that names it; no pipe or device is waited for."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise FileFormatError(f"{path} is a {'directory' if path.is_dir() else 'device'}, not a file")
    try:
        yield
    except (KernattnError, FileNotFoundError, PermissionError):
        raise
    except KeyError as error:
        raise FileFormatError(f"{path} lacks {error}") from error
    except Exception as error:  # the readers of zip, npy, JSON and safetensors raise anything
        text = path.suffix.lower() in (".csv", ".tsv", ".txt")
        meant = "; rows of a table are read by `kernattn features` and np.loadtxt" if text else ""
        raise FileFormatError(f"{path} is damaged or not {what}: {error}{meant}") from error


def read_safetensors(path: Path, why: str, bfloat16: np.dtype[Any] | None = None) -> list[tuple[str, NDArray[Any]]]:
    """Return the names and the floating-point numbers of a file of safetensors.

    Those of bfloat16 are widened to float32, unless there is a dtype for them: then vectors alone are.
    """
    package = require("safetensors", "safetensors", why, extra="huggingface")
    with reading(path, "a file of safetensors"):
        tensors = package.deserialize(path.read_bytes())
        return [(name, _numbers(tensor, bfloat16)) for name, tensor in tensors if tensor["dtype"] in SAFETENSORS]


def _numbers(tensor: dict[str, Any], bfloat16: np.dtype[Any] | None) -> NDArray[Any]:
    """Return a tensor's numbers; those of bfloat16 are the upper halves of float32."""
    values = np.frombuffer(tensor["data"], SAFETENSORS[tensor["dtype"]]).reshape(tensor["shape"])
    if tensor["dtype"] != "BF16":
        return values
    if bfloat16 is not None and values.ndim > 1:
        return values.view(bfloat16)
    return (values.astype(np.uint32) << 16).view(np.float32)


class Archive:
    """An archive that is open: its header, and the arrays, each of which may be taken once."""

    header: Any
    """The header, as JSON says it."""

    def __init__(self, zipped: ZipFile, size: int, kind: str) -> None:
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
        if (given := self._text("format", 64)) != kind:
            raise FileFormatError(f"it is not of the format {kind!r}; got {shown(given)}")
        self.header = json.loads(self._text("header", LONGEST), parse_constant=_refuse_constant)

    def __contains__(self, name: str) -> bool:
        """Return whether there is an array of this name that was not taken."""
        return f"{name}.npy" in self._left

    def array(
        self, name: str, dtypes: tuple[str, ...] = DTYPES, shape: tuple[int | None, ...] | None = None
    ) -> NDArray[Any]:
        """Take an array of one of these dtypes; with a shape, in which None is any size, its numbers must be finite."""

        def check(dtype: np.dtype[Any], given: tuple[int, ...]) -> None:
            if dtype not in map(np.dtype, dtypes) or not given or min(given) < 1:
                allowed = ", ".join(dtypes)
                raise FileFormatError(f"{name} must be an array of {allowed}, no axis empty; got {dtype}{given}")
            if shape is not None and not _fits(given, shape):
                raise FileFormatError(f"{name} must be finite numbers {shape}; got {dtype}{given}")

        values = self._take(name, check)
        if shape is not None and not np.isfinite(values).all():
            raise FileFormatError(f"{name} must be finite numbers {shape}; got others")
        return values

    def check_all_taken(self) -> None:
        """Raise where there are members that nothing named."""
        if self._left:
            raise FileFormatError(f"it has members that its description does not name: {', '.join(self._left)[:200]}")

    def _text(self, name: str, longest: int) -> str:
        """Take a string of so many characters at most."""

        def check(dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
            if dtype.kind != "U" or shape or dtype.itemsize > 4 * longest:
                raise FileFormatError(f"{name} must be a string of at most {longest} characters; got {dtype}{shape}")

        return str(self._take(name, check))

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


class _BoundedReads:
    """A file of which only so much is read at a time: ZipFile reads the list of its members in one piece."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.seek, self.tell, self.seekable, self.close = file.seek, file.tell, file.seekable, file.close

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(AT_ONCE + 1 if size < 0 else min(size, AT_ONCE + 1))
        if len(data) > AT_ONCE:
            raise FileFormatError(f"its list of members is longer than {AT_ONCE} bytes")
        return data


def _fits(given: tuple[int, ...], shape: tuple[int | None, ...]) -> bool:
    return len(given) == len(shape) and all(size in (None, at) for at, size in zip(given, shape, strict=True))


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


def _refuse_constant(name: str) -> Any:
    raise FileFormatError(f"its description holds {name}, which is no finite number")
