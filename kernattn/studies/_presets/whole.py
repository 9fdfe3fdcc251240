"""What a folder of a study must hold before anything is drawn of it: files may be edited by hand, or by a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from kernattn._runtime.checks import shown
from kernattn.errors import FileFormatError
from kernattn.studies._records import CONFIG, RECORDS, Record


def check_whole(folder: Path, config: Mapping[str, Any], records: Sequence[Record], own: bool) -> None:
    """Raise unless a configuration is one that `run` writes, and records have its axes and fields to draw.

    A sweep of one's own has fields of one kind, for its figures are made of what they hold.
    """
    for name, (holds, what) in WANTED.items():
        if not holds(config.get(name)):
            raise FileFormatError(f"{folder / CONFIG} must have {what} as {name}; got {shown(config.get(name))}")
    for name, (holds, what) in OPTIONAL.items():
        if name in config and not holds(config[name]):
            raise FileFormatError(f"{folder / CONFIG} must have {what} as {name}; got {shown(config[name])}")
    for record in records:
        for axis, values in config["axes"].items():
            if axis not in record or record[axis] not in values:
                raise FileFormatError(
                    f"{folder / RECORDS} must hold records with the axis {axis} of {CONFIG}, one of "
                    f"{shown(values)}; got {shown(record.get(axis))}"
                )
        if type(record.get("draws")) is not int or type(record.get("stopped")) is not str:
            raise FileFormatError(f"{folder / RECORDS} must hold records with draws and stopped; got {shown(record)}")
    fields = dict.fromkeys(name for record in records for name in record if name != "seed")
    for field in fields:
        kinds = {_kind(record[field]) for record in records if record.get(field) is not None}
        base = field.removesuffix("_low").removesuffix("_high").removesuffix("_predicted")
        drawn = base != field or f"{field}_low" in fields
        if None in kinds or (drawn and ("word" in kinds or (own and len(kinds) > 1))):
            raise FileFormatError(
                f"{folder / RECORDS} must hold in {field} finite numbers{'' if drawn else ', words'} or lists of "
                f"numbers; got {', '.join(dict.fromkeys(shown(record.get(field)) for record in records))[:200]}"
            )


def _kind(value: Any) -> str | None:
    """Return what kind of value a field has; None of what no field has."""
    if isinstance(value, str):
        return "word"
    if isinstance(value, list):
        return "list" if all(each is None or _kind(each) is not None for each in value) else None
    return "number" if _is_number(value) else None


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and isfinite(value)
    except OverflowError:  # an integer beyond the floats
        return False


def _are_axes(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(each, list) and each for each in value.values())


def _is_list_of_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


Wanted = Mapping[str, tuple[Callable[[Any], bool], str]]
WANTED: Wanted = {
    "study": (lambda value: isinstance(value, str), "a name"),
    "kernattn": (lambda value: isinstance(value, str), "a version"),
    "axes": (lambda value: _are_axes(value) and bool(value), "a list of values for each axis"),
    "along": (_are_axes, "a list of values for each axis of vectors"),
    "paired": (_is_list_of_words, "a list of axes"),
    "seed": (lambda value: type(value) is int, "an integer"),
    "versions": (lambda value: isinstance(value, dict), "the versions of packages"),
}
OPTIONAL: Wanted = {
    "cells": (lambda value: type(value) is int and value > 0, "a positive integer"),
    "sweep": (lambda value: value is None or isinstance(value, str), "a name or null"),
    "settings": (lambda value: value is None or isinstance(value, dict), "an object"),
    "against": (lambda value: value is None or isinstance(value, dict), "an object"),
}
