"""Records on disk: one JSON line per finished cell, so that a killed study resumes with no row lost or doubled.

`config.json` says which settings the folder belongs to; `records.jsonl` grows by whole lines, each flushed to the disk
before the next cell starts. A kill can only leave a last line without its end, which the next start cuts off. Lines
that are no records, whatever else damaged them, are moved into `records.rejected.jsonl`: no good row goes with them.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, final

from kernattn._check import checked_path
from kernattn._files import replace_bytes, replace_text
from kernattn.errors import FileFormatError, KernattnError

__all__ = ["Record", "Records", "StudyConflict", "names", "read_records"]

CONFIG, RECORDS, REJECTED = "config.json", "records.jsonl", "records.rejected.jsonl"

Record = dict[str, Any]
Check = Callable[[Record], str | None]  # what is wrong with a record


class StudyConflict(KernattnError, ValueError):
    """The folder holds another study, or another process is writing to it."""


def read_records(folder: str | PathLike[str], check: Check = lambda record: None) -> list[Record]:
    """Return the finished cells of a study, in the order in which they were written.

    Parameters
    ----------
    folder : str or PathLike
        Of the study.
    check : callable, optional
        Says what is wrong with a record, or None.

    Returns
    -------
    list of dict
        The records. Lines that are none are left out, with a warning that names them; the file stays as it is.
    """
    path = checked_path("folder", folder) / RECORDS
    found = _parse(_whole_lines(path.read_bytes()), check)
    if found.bad:
        warnings.warn(f"{path}: {_reasons(found.bad)}; left out", stacklevel=2)
    return list(found.records.values())


def names(records: Iterable[Record], field: str) -> list[Any]:
    """Return the values of a field, in the order in which they first appear."""
    return list(dict.fromkeys(record[field] for record in records))


class _Lines(NamedTuple):
    """The records by cell, their lines, and lines that are none: number, reason and line."""

    records: dict[str, Record]
    good: list[bytes]
    bad: list[tuple[int, str, bytes]]


def _whole_lines(content: bytes) -> bytes:
    return content[: content.rfind(b"\n") + 1]


def _parse(content: bytes, check: Check) -> _Lines:
    found = _Lines({}, [], [])
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            record = json.loads(line, parse_constant=_refuse)
        except (ValueError, RecursionError):
            record = None
        if not (isinstance(record, dict) and isinstance(record.get("cell"), str)):
            reason: str | None = "is not a record"
        elif record["cell"] in found.records:
            reason = f"repeats the cell {record['cell']}"
        else:
            reason = check(record)
        if reason is None:
            found.records[record["cell"]] = record
            found.good.append(line + b"\n")
        else:
            found.bad.append((number, reason, line + b"\n"))
    return found


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def _reasons(bad: Iterable[tuple[int, str, bytes]]) -> str:
    return "; ".join(f"line {number} {reason}" for number, reason, _ in bad)


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {prefix: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        flat |= _flat(inner, f"{prefix}.{key}" if prefix else str(key))
    return flat


def _differences(stored: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    old = {key: json.dumps(value) for key, value in _flat(stored).items()}
    new = {key: json.dumps(value) for key, value in _flat(given).items()}
    return [
        f"{key} was {old.get(key, 'absent')}, is {new.get(key, 'absent')}"
        for key in dict.fromkeys([*new, *old])
        if old.get(key) != new.get(key)
    ]


@final
class Records:
    """The open folder of one study: a context manager that holds its lock and appends finished cells.

    Parameters
    ----------
    folder : Path
        Created if it is not there.
    settings : mapping
        Plain JSON values that every cell depends on. A folder that holds another study's is refused.
    notes : mapping
        Plain JSON values stored beside the settings when the study starts, and never compared.
    check : callable, optional
        Says what is wrong with a stored record, or None.
    """

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        notes: Mapping[str, Any],
        check: Check = lambda record: None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(folder)
        try:
            _settle_config(folder, json.loads(json.dumps(settings)), notes)
            path = folder / RECORDS
            content = path.read_bytes() if path.exists() else None
            found = _parse(_whole_lines(content or b""), check)
            self.done = found.records
            if found.bad:
                _move_aside(folder / REJECTED, found.bad)
                warnings.warn(f"{path}: {_reasons(found.bad)}; moved to {REJECTED}", stacklevel=2)
            if content != (good := b"".join(found.good)):
                replace_bytes(path, good)
            self._file = path.open("ab")
        except BaseException:
            _unlock(self._lock)
            raise

    def append(self, record: Record) -> None:
        """Write one finished cell, and return when it is on the disk."""
        cell = record["cell"]
        if cell in self.done:
            raise StudyConflict(f"the cell {cell} has its record already")
        self._file.write(json.dumps(record, allow_nan=False).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done[cell] = record

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._file.close()
        _unlock(self._lock)


def _move_aside(path: Path, bad: Iterable[tuple[int, str, bytes]]) -> None:
    before = path.read_bytes() if path.exists() else b""
    replace_bytes(path, before + b"".join(line for _, _, line in bad))


def _settle_config(folder: Path, settings: Mapping[str, Any], notes: Mapping[str, Any]) -> None:
    path = folder / CONFIG
    if not path.exists():
        if (folder / RECORDS).exists():
            raise StudyConflict(f"{folder} holds a {RECORDS} without its {CONFIG}; choose another --out")
        replace_text(path, json.dumps({"settings": settings, "notes": notes}, indent=2) + "\n")
        return
    try:
        stored = json.loads(path.read_bytes())["settings"]
    except (ValueError, TypeError, KeyError) as error:
        raise FileFormatError(f"{path} is not the configuration of a study; choose another --out") from error
    differences = _differences(stored, settings)
    if differences:
        raise StudyConflict(f"{folder} holds another study: {'; '.join(differences)}. Choose another --out")


def _lock(folder: Path) -> int | None:
    """Lock the folder as long as the returned descriptor is open; the system lets go when the process dies."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows, where nothing keeps two writers apart
        return None
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise StudyConflict(f"another process is writing to {folder}") from error
    return descriptor


def _unlock(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)
