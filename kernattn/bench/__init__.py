"""Benchmarks: each op against its floor and against every peer that can be imported, in alternation, in one process.

The devices' own parts are imported when `device` is asked for them: the races on a GPU do without Numba.
"""

from __future__ import annotations

from importlib import import_module

from kernattn._dispatch import missing
from kernattn.bench._rows import Device, bench
from kernattn.bench._sizes import Sizes
from kernattn.bench._tables import table, write
from kernattn.errors import BackendUnavailable, ParameterError

__all__ = ["DEVICES", "Device", "Sizes", "bench", "device", "table", "write"]

DEVICES = ("cpu", "gpu")


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
    if name not in DEVICES:
        raise ParameterError(f"device must be one of {', '.join(DEVICES)}; got {name!r}")
    reason = missing(name)
    if reason is not None:
        raise BackendUnavailable(f"the benchmark of device {name!r} cannot run here: {reason}")
    found: Device = import_module(f"kernattn.bench.{name}").DEVICE
    return found


def __dir__() -> list[str]:
    return __all__
