"""Records on disk: one JSON line per finished cell, so that a killed study resumes with no row lost or doubled.

`records.jsonl` holds the cells that the last command asked for. While they are measured it grows by whole lines, each
flushed to the disk; in the end the lines stand in the order of the sweep. Cells of the study that an earlier command
asked for wait in `records.spare.jsonl`, and come back when they are asked for again. Lines that are no records, for a
disk or a hand damaged them, are moved into `records.rejected.jsonl`: no good row goes with them.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import isfinite
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, final

from kernattn._runtime.checks import checked_path
from kernattn._runtime.files import lock, replace_bytes, replace_text
from kernattn.errors import FileFormatError, KernattnError, ParameterError
from kernattn.studies._seeds import digest

CONFIG, RECORDS, SPARE, REJECTED = "config.json", "records.jsonl", "records.spare.jsonl", "records.rejected.jsonl"
ENDS = ("", "_low", "_high")  # of the fields of a value and its interval: x, x_low, x_high
FORMAT = 2  # of a folder; 1 was that of kernattn 0.1, whose records have no checksum

Record = dict[str, Any]


class StudyConflict(KernattnError, ValueError):
    """The folder holds another study, or another process is writing to it."""


def names(records: Iterable[Record], field: str) -> list[Any]:
    """Return the values of a field, in the order in which they first appear."""
    return list(dict.fromkeys(record[field] for record in records))


def select(records: Iterable[Record], **wanted: Any) -> list[Record]:
    """Return the records with these values."""
    return [record for record in records if all(record[key] == value for key, value in wanted.items())]


def choose(records: Iterable[Record], where: Mapping[str, Any]) -> list[Record]:
    """Return the records with these values, each one or a list of several; a word also stands for what prints so."""
    wanted = {axis: values if isinstance(values, list | tuple) else (values,) for axis, values in where.items()}
    return [
        record
        for record in records
        if all(record[axis] in values or str(record[axis]) in values for axis, values in wanted.items())
    ]


def group(records: Iterable[Record], *fields: str) -> dict[tuple[Any, ...], list[Record]]:
    """Return the records by their values of these fields, in the order in which the values first appear."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        groups.setdefault(tuple(record[field] for field in fields), []).append(record)
    return groups


def spell(name: str) -> str:
    """Return a name as a sentence has it."""
    return name.replace("_", " ")


def with_ends(name: str, interval: Iterable[Any]) -> dict[str, Any]:
    """Return the fields of a value and the two ends of its interval."""
    return {f"{name}{end}": part for end, part in zip(ENDS, interval, strict=True)}


def with_intervals(of: Callable[[Any], Iterable[Any]], **draws: Any) -> dict[str, Any]:
    """Return the fields of values and the ends of their intervals, by a function of their redraws (R, ...)."""
    return {name: part for field, each in draws.items() for name, part in with_ends(field, of(each)).items()}


def drop_times(record: Record) -> Record:
    """Return a record without what a clock said: all else, any run repeats."""
    return {name: value for name, value in record.items() if not name.endswith("seconds")}


def seal(record: Record) -> Record:
    """Return a record with its checksum, a hash of all but its times."""
    return record | {"checksum": digest(drop_times(record))}


def read_records(folder: str | PathLike[str]) -> list[Record]:
    """Return the records of a study, one mapping of field to value per cell, in the order of the file.

    Lines that are no records are left out, with a warning that names them; the file stays as it is.

    Parameters
    ----------
    folder : str or PathLike
        Of the study.
    """
    folder = checked_path("folder", folder)
    if not (folder / RECORDS).is_file():
        raise FileFormatError(f"{folder} holds no study: there is no {RECORDS}")
    _read_config(folder)
    lines = _parse([folder / RECORDS])
    if lines.bad:
        warnings.warn(f"{folder / RECORDS}: {_reasons(lines.bad)}; left out", stacklevel=2)
    return list(lines.records.values())


def read_config(folder: Path) -> dict[str, Any]:
    """Return the configuration of a study's folder: its axes, its seed, the versions that it ran with."""
    return _read_config(folder) or {}


class _Lines(NamedTuple):
    """The records by cell, and lines that are none: file, number, reason and line."""

    records: dict[str, Record]
    bad: list[tuple[str, int, str, bytes]]


def _parse(paths: Iterable[Path]) -> _Lines:
    """Return the records of the files; a kill leaves a last line without its end, which is no bad line."""
    whole = _Lines({}, [])
    for path in paths:
        content = path.read_bytes() if path.exists() else b""
        lines = content.split(b"\n")
        for number, line in enumerate(lines, start=1):
            record, reason = _check_line(line)
            if number == len(lines) and reason is not None:
                break  # what follows the last newline: nothing, or a line that was cut
            if reason is None and record["cell"] in whole.records:
                if drop_times(record) == drop_times(whole.records[record["cell"]]):
                    continue  # a kill while it was moved from one file to the other
                reason = f"repeats the cell {record['cell']}"
            if reason is None:
                whole.records[record["cell"]] = record
            else:
                whole.bad.append((path.name, number, reason, line + b"\n"))
    return whole


def _check_line(line: bytes) -> tuple[Record, str | None]:
    """Return the record of a line, and what is wrong with it."""
    try:
        record = json.loads(line, parse_constant=_refuse)
        if not (isinstance(record, dict) and isinstance(record.get("cell"), str)):
            return {}, "is not a record"
        rest = {name: value for name, value in record.items() if name != "checksum"}
        seconds = record.get("seconds")
        timed = isinstance(seconds, float | int) and isfinite(seconds)
        if seal(rest)["checksum"] != record.get("checksum") or not timed:
            return {}, "was changed after it was written"
    except (ValueError, RecursionError):
        return {}, "is not a record"
    return record, None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")


def _reasons(bad: Iterable[tuple[str, int, str, bytes]]) -> str:
    return "; ".join(f"line {number} {reason}" for _, number, reason, _ in bad)


def _lines(records: Iterable[Record]) -> bytes:
    return b"".join(json.dumps(record, allow_nan=False).encode() + b"\n" for record in records)


@final
class Records:
    """The open folder of one study: a context manager that holds its lock and appends finished cells.

    The folder is created if needed; whether it can be written to shows before any cell is measured. `config` holds
    plain JSON values, and `cells` the names of those that are asked for, in canonical order.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any], cells: Sequence[str]) -> None:
        self._folder, self._cells = folder, list(cells)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(folder)
        except OSError as error:
            raise ParameterError(f"{folder} cannot be written to: {error.strerror or error}") from error
        try:
            self._open(config)
        except (PermissionError, IsADirectoryError) as error:
            _unlock(self._lock)
            raise ParameterError(f"{folder} cannot be written to: {error.strerror or error}") from error
        except BaseException:
            _unlock(self._lock)
            raise

    def _open(self, config: Mapping[str, Any]) -> None:
        stored = _read_config(self._folder)
        if stored is not None and stored.get("study") != config["study"]:
            raise StudyConflict(
                f"{self._folder} holds the study {stored.get('study')}, not {config['study']}; "
                "choose another folder (--out)"
            )
        replace_text(self._folder / CONFIG, json.dumps({"format": FORMAT, **config}, indent=2) + "\n")
        lines = _parse(self._folder / name for name in (RECORDS, SPARE))
        if lines.bad:
            rejected = self._folder / REJECTED
            before = rejected.read_bytes() if rejected.exists() else b""
            replace_bytes(rejected, before + b"".join(line for *_, line in lines.bad))
            for name in dict.fromkeys(name for name, *_ in lines.bad):
                reasons = _reasons(each for each in lines.bad if each[0] == name)
                warnings.warn(f"{self._folder / name}: {reasons}; moved to {REJECTED}", stacklevel=4)
        asked = set(self._cells)
        self.done = {name: record for name, record in lines.records.items() if name in asked}
        spare = {name: record for name, record in lines.records.items() if name not in asked}
        waiting = _parse([self._folder / SPARE]).records
        self._keep_spare(waiting | spare)  # a kill finds every record in one of the files at least
        self._order()
        self._keep_spare(spare)
        self._file = (self._folder / RECORDS).open("ab")

    def _keep_spare(self, records: Mapping[str, Record]) -> None:
        _settle(self._folder / SPARE, _lines(records[name] for name in sorted(records)))

    def append(self, record: Record) -> None:
        """Write one finished cell, and return when it is on the disk."""
        cell = record["cell"]
        if cell in self.done:
            raise StudyConflict(f"the cell {cell} has its record already")
        self._file.write(_lines([record]))
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done[cell] = record

    def finish(self) -> list[Record]:
        """Put the records on the disk into canonical order, and return them: nothing is appended after that."""
        self._file.close()
        return self._order()

    def _order(self) -> list[Record]:
        kept = [self.done[name] for name in self._cells if name in self.done]
        _settle(self._folder / RECORDS, _lines(kept), always=True)
        return kept

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if value is not None and self.done:
            kept = f"{len(self.done)} of {len(self._cells)} cells are in {self._folder}"
            value.add_note(f"{kept}, and the same call goes on from there")
        try:
            self._file.close()
        finally:
            _unlock(self._lock)


def _settle(path: Path, content: bytes, always: bool = False) -> None:
    """Let a file hold this, and touch nothing where it does; one that was never needed is not made."""
    if (path.read_bytes() if path.exists() else None if always else b"") != content:
        replace_bytes(path, content)


def _read_config(folder: Path) -> dict[str, Any] | None:
    """Return the configuration of a folder, None where there is none yet."""
    path = folder / CONFIG
    if not path.exists():
        if (folder / RECORDS).exists():
            raise FileFormatError(f"{folder} holds a {RECORDS} without its {CONFIG}; choose another folder (--out)")
        return None
    try:
        stored = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise FileFormatError(f"{path} is not the configuration of a study; choose another folder (--out)") from error
    if isinstance(stored, dict) and isinstance(stored.get("settings"), dict) and "format" not in stored:
        raise FileFormatError(
            f"{folder} holds a study of kernattn 0.1, whose records have other fields and no checksums; they are lines "
            "of JSON that any reader takes. Choose another --out"
        )
    if not isinstance(stored, dict) or stored.get("format") != FORMAT:
        raise FileFormatError(f"{path} is not the configuration of a study; choose another folder (--out)")
    return stored


def _lock(folder: Path) -> int | None:
    """Lock the folder as long as the returned descriptor is open; the system lets go when the process dies."""
    if os.name == "nt":  # where folders cannot be opened
        return None
    descriptor = os.open(folder, os.O_RDONLY)
    if not lock(descriptor):
        os.close(descriptor)
        raise StudyConflict(f"another process is writing to {folder}")
    return descriptor


def _unlock(descriptor: int | None) -> None:
    if descriptor is not None:
        os.close(descriptor)
