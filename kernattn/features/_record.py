"""Maps as records: plain numbers and arrays, for a fingerprint of the content and for files without pickle."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from kernattn._array import Host, frozen
from kernattn._files import replacing
from kernattn.errors import FileFormatError, ParameterError

__all__ = ["decode", "encode", "fingerprint", "read", "save", "type_name"]

FORMAT = "kernattn map 1"


def encode(value: Any, arrays: dict[str, Host], foreign: Callable[[Any], Any]) -> Any:
    """Return `value` as JSON, its arrays moved into `arrays`; `foreign` says what becomes of anything unknown."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return [encode(item, arrays, foreign) for item in value]
    if isinstance(value, np.ndarray):
        name = f"array{len(arrays)}"
        arrays[name] = value
        return {"array": name}
    if is_dataclass(value):
        content = {f.name: encode(getattr(value, f.name), arrays, foreign) for f in fields(value)}
        return {"type": type_name(type(value)), "fields": content}
    return foreign(value)


def type_name(cls: type) -> str:
    """Return a name that tells a kernel, a projection and a map called the same apart: "kernels.Polynomial"."""
    return ".".join((*cls.__module__.split(".")[1:2], cls.__name__))


def decode(record: Any, arrays: Mapping[str, Host], types: Mapping[str, type]) -> Any:
    """Return the value that `encode` turned into `record`."""
    if isinstance(record, list):
        return tuple(decode(item, arrays, types) for item in record)
    if not isinstance(record, dict):
        return record
    if "array" in record:
        return frozen(arrays[record["array"]])
    content = {name: decode(item, arrays, types) for name, item in record["fields"].items()}
    return types[record["type"]](**content)


def fingerprint(value: Any) -> int:
    """Return a number below 2**31 that tells maps of different content apart; it fits any integer type."""
    arrays: dict[str, Host] = {}
    header = encode(value, arrays, lambda other: f"{type(other).__qualname__} {id(other)}")
    digest = blake2b(json.dumps(header).encode(), digest_size=4)
    for array in arrays.values():
        digest.update(np.ascontiguousarray(array).tobytes())
    return int.from_bytes(digest.digest(), "big") >> 1


def save(value: Any, path: str | PathLike[str]) -> None:
    """Write `value` to `path` as npz, whole or not at all."""

    def refuse(other: Any) -> Any:
        raise ParameterError(f"a map with {other!r} cannot be saved: only functions that have a name in kernattn can")

    arrays: dict[str, Host] = {}
    header = json.dumps(encode(value, arrays, refuse))
    with replacing(Path(path)) as file:
        np.savez(file, format=np.array(FORMAT), header=np.array(header), **arrays)  # type: ignore[arg-type]


def read(path: str | PathLike[str], types: Mapping[str, type]) -> Any:
    """Return the value that `save` wrote to `path`."""
    try:
        with Path(path).open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            if "format" not in file or str(file["format"]) != FORMAT:
                raise FileFormatError(f"{path} is not a file of format {FORMAT!r}")
            arrays = {name: file[name] for name in file if name.startswith("array")}
            return decode(json.loads(str(file["header"])), arrays, types)
    except (BadZipFile, EOFError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, FileFormatError):
            raise
        raise FileFormatError(f"{path} is damaged or not a kernattn file: {error}") from error
