"""Benchmarks: each op against its floor and against every peer that can be imported, in alternation, in one process.

The devices' own parts are imported when `device` is asked for them: the races on a GPU do without Numba.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from kernattn.bench._rows import Case, Device, bench
from kernattn.bench._sizes import Sizes
from kernattn.bench._tables import table, write
from kernattn.errors import BackendUnavailable, ParameterError
from kernattn.ops.dispatch import missing

__all__ = ["DEVICES", "Case", "Device", "Sizes", "bench", "cases", "device", "table", "write"]

DEVICES = ("cpu", "gpu")


def cases(name: str) -> Mapping[str, Case]:
    """Return what can be raced on a device, on any machine.

    Parameters
    ----------
    name : {"cpu", "gpu"}
        The device.

    Returns
    -------
    mapping of str to Case
        The cases by name; ``case.about`` says in a line what a case races.

    Raises
    ------
    ParameterError
        If `name` is another one.

    Examples
    --------
    >>> from kernattn.bench import cases
    >>> cases("cpu")["one-head"].about
    'One head of 8 n tokens, causal elu + 1: all threads against one.'
    """
    found: Mapping[str, Case] = import_module(f"kernattn.bench.{_known(name)}._cases").CASES
    return found


def device(name: str) -> Device:
    """Return what is raced on a device, and how.

    Parameters
    ----------
    name : {"cpu", "gpu"}
        The device.

    Returns
    -------
    Device
        Its cases, usual sizes, clock and rates.

    Raises
    ------
    ParameterError
        If `name` is another one.
    BackendUnavailable
        If this machine has no such device, or lacks what its loops need.

    Examples
    --------
    >>> from kernattn.bench import device
    >>> list(device("cpu").cases)[:2]
    ['causal-elu1', 'causal-favor']
    """
    reason = missing(_known(name))
    if reason is not None:
        raise BackendUnavailable(f"the benchmark of device {name!r} cannot run here: {reason}")
    found: Device = import_module(f"kernattn.bench.{name}").DEVICE
    return found


def _known(name: str) -> str:
    if name not in DEVICES:
        raise ParameterError(f"device must be one of {', '.join(DEVICES)}; got {name!r}")
    return name


def __dir__() -> list[str]:
    return __all__
