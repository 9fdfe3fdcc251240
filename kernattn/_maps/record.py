"""Maps as records: plain numbers and arrays, for a fingerprint of the content and for files without pickle."""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import count
from math import isfinite
from os import PathLike
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from weakref import ref

import numpy as np

from kernattn._arrays.namespaces import Float64, frozen
from kernattn._runtime.archive import Archive, open_archive, save_archive
from kernattn._runtime.checks import shown
from kernattn.errors import FileFormatError, KernattnError, ParameterError

FORMAT = "kernattn map 1"
RENAMED = {  # classes that keep the name of 0.1 in files and fingerprints
    "features.Monomials": "features.Polynomial",
    "features.ScaledMap": "features.Multiple",
    "features.TensorProduct": "features.Tensor",
}
DEPTH = 32  # maps and kernels inside of each other, at most


def encode(value: Any, arrays: dict[str, Float64], foreign: Callable[[Any], Any]) -> Any:
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


OLD_ROOMS = {"_maps": "ops"}
"""Rooms under the names by which files and fingerprints know them."""


def type_name(cls: type) -> str:
    """Return the name of a class in files and fingerprints, with its room: "kernels.Polynomial"."""
    room = cls.__module__.split(".")[1:2]
    name = ".".join((*(OLD_ROOMS.get(each, each) for each in room), cls.__name__))
    return RENAMED.get(name, name)


_serial_numbers = count()
_alive: dict[int, tuple[ref[Any], int]] = {}


def _serial_number(foreign: Any) -> int:
    """Return a number that no object before had at the same address; -1 where Python cannot say."""
    address = id(foreign)
    known = _alive.get(address)
    if known is not None and known[0]() is foreign:
        return known[1]
    try:
        _alive[address] = known = ref(foreign), next(_serial_numbers)
    except TypeError:
        return -1
    return known[1]


def fingerprint(value: Any) -> int:
    """Return a number below 2**31 that tells maps of different content apart; it fits any integer type."""
    arrays: dict[str, Float64] = {}

    def content(other: Any) -> Any:
        if isinstance(other, dict) and all(isinstance(name, str) for name in other):  # the numbers of a learnt map
            return {name: encode(item, arrays, content) for name, item in other.items()}
        return f"{type(other).__qualname__} {id(other)} {_serial_number(other)}"

    header = encode(value, arrays, content)
    digest = blake2b(json.dumps(header).encode(), digest_size=4)
    for array in arrays.values():
        digest.update(np.ascontiguousarray(array).tobytes())
    return int.from_bytes(digest.digest(), "big") >> 1


def save(value: Any, path: str | PathLike[str]) -> None:
    """Write `value` to `path` as npz, whole or not at all."""

    def refuse(other: Any) -> Any:
        raise ParameterError(
            f"a map with {shown(other)} cannot be saved: files hold maps as they were drawn, and functions that have a "
            "name in kernattn. Of a map of with_numbers, save `base`, and `numbers` beside it"
        )

    arrays: dict[str, Float64] = {}
    header = encode(value, arrays, refuse)
    if _depth(header) > DEPTH:
        raise ParameterError(f"the map cannot be saved: it holds maps inside of maps, more than {DEPTH} deep")
    save_archive(path, FORMAT, header, arrays)


def read(path: str | PathLike[str], types: Mapping[str, type]) -> Any:
    """Return the value that `save` wrote to `path`."""
    with open_archive(path, FORMAT) as archive:
        if _depth(archive.header) > DEPTH:
            raise FileFormatError(f"its description is more than {DEPTH} deep")
        return _Decoder(archive, types).decode(archive.header, "the description")


class _Decoder:
    """From a description to values, each checked against what its class says of its fields."""

    def __init__(self, archive: Archive, types: Mapping[str, type]) -> None:
        self._archive = archive
        self._types = types

    def decode(self, record: Any, where: str) -> Any:
        """Return the value that `encode` turned into `record`."""
        if isinstance(record, list):
            return tuple(self.decode(item, f"{where}[{i}]") for i, item in enumerate(record))
        if not isinstance(record, dict):
            return record
        if record.keys() == {"array"} and isinstance(record["array"], str):
            return frozen(self._archive.array(record["array"]))
        if record.keys() == {"type", "fields"} and isinstance(record["fields"], dict):
            return self._instance(record["type"], record["fields"], where)
        raise FileFormatError(
            f"{where} must be a number, a string, an array or a type with fields; got {_short(record)}"
        )

    def _instance(self, name: Any, content: dict[str, Any], where: str) -> Any:
        cls = self._types.get(name) if isinstance(name, str) else None
        if cls is None:
            raise FileFormatError(
                f"{where} is of an unknown type, {_short(name)}: a class of your own needs a row of "
                "ka.features.ESTIMATORS in this process, before the file is read"
            )
        hints = _hints(cls)
        if not hints.keys() - _later(cls) <= content.keys() <= hints.keys():
            raise FileFormatError(
                f"{where} must have the fields {', '.join(hints)} of {name}; got {_short([*content])}"
            )
        values = {}
        for field, record in content.items():
            values[field] = value = self.decode(record, f"{where}.{field}")
            if not _fits(value, hints[field]):
                raise FileFormatError(f"{where}.{field} must be {hints[field]}; got {_short(value)}")
        try:
            return cls(**values)
        except KernattnError as error:
            raise FileFormatError(f"{where}: {error}") from error


@lru_cache(maxsize=256)
def _hints(cls: type) -> dict[str, Any]:
    """Return the types of a dataclass's fields."""
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in fields(cls)}


def _later(cls: type) -> set[str]:
    """Return the fields that older files lack."""
    return {field.name for field in fields(cls) if "later" in field.metadata}


def _fits(value: Any, hint: Any) -> bool:
    """Say whether a value is of the type that a field is declared with."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in parts)
    if hint in (None, NoneType):
        return value is None
    if hint is float:
        return type(value) in (int, float) and abs(value) < 2**1023 and isfinite(value)
    if hint is int:
        return type(value) is int and abs(value) < 2**63
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, parts[0]) for item in value)
    if origin is np.ndarray:
        (wanted,) = get_args(parts[1])
        return isinstance(value, np.ndarray) and (wanted is Any or value.dtype == wanted)
    if isinstance(origin, type):  # a sequence of numbers, or a function, of which only the name is saved
        return isinstance(value, tuple) and isinstance(value, origin) and all(_fits(item, parts[0]) for item in value)
    return isinstance(value, hint)


def _depth(record: Any) -> int:
    """Return how many records lie inside of each other."""
    if isinstance(record, dict) and isinstance(record.get("fields"), dict):
        return 1 + max((_depth(item) for item in record["fields"].values()), default=0)
    return max((_depth(item) for item in record), default=0) if isinstance(record, list) else 0


def _short(value: Any) -> str:
    text = f"{value.dtype}{value.shape}" if isinstance(value, np.ndarray) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
