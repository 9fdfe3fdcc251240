"""The cases that kernattn is judged by: each op against its floor and against every peer that can be imported.

`kernattn bench` imports this folder as the package `bench`, from a clone of the repository. The devices' own parts are
imported when `device` is asked for them: the races on a GPU do without Numba.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from bench.races import Case, Device, race_cases
from bench.report import write
from bench.sizes import Sizes
from kernattn.errors import BackendUnavailable, ParameterError
from kernattn.ops import dispatch as _dispatch

__all__ = ["DEVICES", "Case", "Device", "Sizes", "cases", "device", "race_cases", "write"]

DEVICES = ("cpu", "gpu")


def cases(name: str) -> Mapping[str, Case]:
    """Return what can be raced on a device, on any machine; `case.about` says in a line what a case races."""
    return import_module(f"bench.{_check(name)}.cases").CASES


def device(name: str) -> Device:
    """Return what is raced on a device, and how; raise where this machine lacks it, or what its loops need."""
    reason = _dispatch.missing(_check(name))
    if reason is not None:
        raise BackendUnavailable(f"the benchmark of device {name!r} cannot run here: {reason}")
    return import_module(f"bench.{name}.device").DEVICE


def _check(name: str) -> str:
    if name not in DEVICES:
        raise ParameterError(f"device must be one of {', '.join(DEVICES)}; got {name!r}")
    return name
