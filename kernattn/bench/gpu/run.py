"""Running the cases on the device there is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kernattn._check import positive_integer
from kernattn._dispatch import missing
from kernattn._precision import precision
from kernattn.bench.gpu.cases import CASES
from kernattn.bench.gpu.clock import Clock, EventClock, race
from kernattn.bench.gpu.products import measure_rates
from kernattn.bench.gpu.work import DTYPES, Rates, Sizes
from kernattn.errors import BackendUnavailable, ParameterError

__all__ = ["Row", "bench", "check"]

Row = dict[str, Any]


def check(names: Sequence[str], sizes: Sizes, lengths: Sequence[int]) -> None:
    """Raise unless there is a device, every name is a case and every size one that can be raced."""
    reason = missing("gpu")
    if reason is not None:
        raise BackendUnavailable(f"the benchmark of device 'gpu' needs one: {reason}")
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise ParameterError(f"cases on a GPU are {', '.join(CASES)}; got {', '.join(unknown)}")
    if sizes.dtype not in DTYPES:
        raise ParameterError(f"dtype must be one of {', '.join(DTYPES)}; got {sizes.dtype!r}")
    for name in ("batch", "heads", "dim", "features"):
        positive_integer(name, getattr(sizes, name))
    for n in lengths:
        positive_integer("n", n)


def bench(
    names: Sequence[str],
    sizes: Sizes,
    lengths: Sequence[int],
    rounds: int = 15,
    seconds: float = 10.0,
    clock: Clock | None = None,
    rates: Rates | None = None,
) -> list[Row]:
    r"""Race each case against its rivals for every length, :math:`ratio = t_{rival} / t_{ours}`.

    Parameters
    ----------
    names : sequence of str
        Cases, names of `kernattn.bench.gpu.CASES`.
    sizes : Sizes
        Sizes and dtype; its n is replaced by each of `lengths`.
    lengths : sequence of int
        Tokens. The cases of one token run once.
    rounds : int
        Turns of every contestant.
    seconds : float
        Measured time after which a case stops early, once each contestant had three turns.
    clock : Clock, optional
        What marks moments; events of the device by default.
    rates : Rates, optional
        Rates of the floors; measured by default.

    Returns
    -------
    list of dict
        Sizes, milliseconds (median, low and high quartile), ratio to ours, bytes and flops of a call, the two floors
        in milliseconds, the time over the larger of them, and why a contestant did not run.

    Raises
    ------
    BackendUnavailable
        If there is no device.
    ParameterError
        If a name is no case, or a size cannot be.
    """
    check(names, sizes, lengths)
    clock = EventClock() if clock is None else clock
    rows = []
    with precision("tf32" if sizes.dtype == "tf32" else "float32"):
        found = measure_rates(sizes, clock) if rates is None else rates
        for name in names:
            for n in lengths[:1] if name.startswith("step") else lengths:
                rows += _case(name, replace(sizes, n=n), found, clock, rounds, seconds)
    return rows


def _case(name: str, sizes: Sizes, rates: Rates, clock: Clock, rounds: int, seconds: float) -> list[Row]:
    entry = CASES[name](sizes, _cache())
    times, failed = race({**entry.ours, **entry.rivals}, entry.sets, clock, rounds, seconds, _give_back)
    traffic, arithmetic = (1e3 * floor for floor in rates.seconds(entry.work))
    fixed = {"case": name, "n": 1 if name.startswith("step") else sizes.n, "sets": entry.sets}
    fixed |= {key: getattr(sizes, key) for key in ("batch", "heads", "dim", "features", "dtype")}
    fixed |= {"bytes": entry.work.bytes, "flops": entry.work.flops}
    fixed |= {"traffic_floor_ms": traffic, "product_floor_ms": arithmetic}
    fixed |= {"copy_bytes_per_second": rates.bytes, "product_flops_per_second": rates.flops}
    rows: list[Row] = []
    for contestant, time in times.items():
        row = {"contestant": contestant, **fixed}
        row |= {"median_ms": 1e3 * time.median, "low_ms": 1e3 * time.low, "high_ms": 1e3 * time.high}
        row |= {"turns": time.calls, "over_floor": 1e3 * time.median / max(traffic, arithmetic)}
        if "ours" in times:
            row["ratio"] = time.median / times["ours"].median
        rows.append(row)
    return rows + [{"contestant": contestant, **fixed, "failed": why} for contestant, why in failed.items()]


def _cache() -> int:
    """Return the bytes of the device's largest cache."""
    import cupy

    return int(cupy.cuda.Device().attributes["L2CacheSize"])


def _give_back() -> None:
    """Let the next contestant have the memory that the libraries keep for themselves."""
    import cupy

    cupy.get_default_memory_pool().free_all_blocks()
    if "torch" in sys.modules:
        sys.modules["torch"].cuda.empty_cache()
