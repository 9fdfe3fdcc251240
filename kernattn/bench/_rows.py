"""Running the cases of a device: a row for each contestant."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from typing import Any

from kernattn._arrays.precision import precision
from kernattn._runtime.checks import positive_integer
from kernattn.bench._races import Call, Clock, race
from kernattn.bench._rates import Gauge, Rates, Work, rates_of
from kernattn.bench._sizes import Sizes
from kernattn.bench._tables import Column
from kernattn.errors import MissingExtra, ParameterError

Row = dict[str, Any]

_GAUGE = "gauge of "  # a contestant that no row tells of


@dataclass(frozen=True, eq=False)
class Race:
    """Calls by contestant, "ours" among them, each over `sets` sets of inputs; the work of one set; squared errors.

    `works` has the work of contestants that do something else, which stands beside what "ours" does; `medians` the
    medians of absolute errors, where a few rows carry most of the squared ones; `dim` the columns that data have.
    """

    calls: Mapping[str, Call]
    work: Work
    sets: int = 1
    errors: Mapping[str, Callable[[], float]] = field(default_factory=dict)
    works: Mapping[str, Work] = field(default_factory=dict)
    medians: Mapping[str, Callable[[], float]] = field(default_factory=dict)
    dim: int | None = None


@dataclass(frozen=True, eq=False)
class Case:
    """What makes a race of some sizes, its n where that is always the same, and what tells it from its siblings."""

    make: Callable[[Sizes], Race]
    n: int | None = None
    told: str = ""

    @property
    def about(self) -> str:
        """What is raced, in a line, and what tells it from its siblings: a word of its own, or its parameters."""
        make, given = self.make, []
        while isinstance(make, partial):
            given += [f"{name} = {value}" for name, value in make.keywords.items() if isinstance(value, bool | tuple)]
            make = make.func
        line = (make.__doc__ or "").strip().partition("\n")[0]
        told = self.told or ", ".join(given)
        return f"{line} ({told})" if told else line


@dataclass(frozen=True, eq=False)
class Device:
    """What differs between devices: cases, usual sizes, clock, gauges of its rates, and how rows are shown."""

    name: str
    cases: Mapping[str, Case]
    sizes: Sizes
    lengths: tuple[int, ...]
    dtypes: tuple[str, ...]
    clock: Callable[[], Clock]
    gauges: Callable[[Sizes, Work], Mapping[str, Gauge]]
    machine: Callable[[], str]
    columns: tuple[Column, ...]
    facts: Callable[[Clock], Row] = lambda clock: {}


def bench(
    device: Device,
    names: Sequence[str] | None = None,
    sizes: Sizes | None = None,
    lengths: Sequence[int] | None = None,
    rounds: int = 15,
    seconds: float = 15.0,
    clock: Clock | None = None,
    rates: Rates | None = None,
    report: Callable[[list[Row]], None] = lambda rows: None,
) -> list[Row]:
    r"""Race each case against its peers for every length: a row per contestant, :math:`ratio = t_{peer} / t_{ours}`.

    Parameters
    ----------
    device : Device
        Where, from `kernattn.bench.device`.
    names : sequence of str, optional
        Cases of the device; default all.
    sizes : Sizes, optional
        Sizes and dtype, of which n is replaced by each of `lengths`; default the device's usual ones.
    lengths : sequence of int, optional
        Tokens. Cases whose number of rows is fixed run once.
    rounds : int
        Turns of every contestant.
    seconds : float
        Time after which a case stops early, once each contestant had three turns.
    clock : Clock, optional
        What marks moments; default the device's.
    rates : Rates, optional
        Rates of the floors; default those measured in alternation with each race.
    report : callable
        Is told all rows so far after each race, so that they can be kept.

    Returns
    -------
    list of dict
        Sizes, milliseconds (median, low and high quartile), ratio to ours, the work of a call, the floor and its parts
        in milliseconds, the time over the floor, over its parts in turn and over traffic alone, the squared error and
        the median of absolute errors where the case has them, or why a contestant failed.
        Of a case whose data need a package that is not installed there is one row of case and skipped, the reason.

    Raises
    ------
    ParameterError
        If a name is no case of the device, or a size or a number of rounds cannot be.
    """
    names = list(device.cases) if names is None else names
    sizes = device.sizes if sizes is None else sizes
    lengths = device.lengths if lengths is None else lengths
    _check(device, names, sizes, lengths)
    positive_integer("rounds", rounds)
    clock = device.clock() if clock is None else clock
    rows: list[Row] = []
    with precision("tf32" if sizes.dtype == "tf32" else "float32"):
        for name in names:
            case = device.cases[name]
            for n in lengths if case.n is None else (case.n,):
                rows += _rows(device, name, replace(sizes, n=n), rates, clock, rounds, seconds)
                report(rows)
    return rows


def _check(device: Device, names: Sequence[str], sizes: Sizes, lengths: Sequence[int]) -> None:
    """Raise unless every name is a case and every size one that can be raced."""
    unknown = [name for name in names if name not in device.cases]
    if unknown:
        raise ParameterError(f"cases of device {device.name!r} are {', '.join(device.cases)}; got {', '.join(unknown)}")
    if sizes.dtype not in device.dtypes:
        raise ParameterError(
            f"dtype must be one of {', '.join(device.dtypes)} on device {device.name!r}; got {sizes.dtype!r}"
        )
    for name in ("batch", "heads", "dim", "features"):
        positive_integer(name, getattr(sizes, name))
    if device.name == "cpu" and sizes.batch > 1:
        raise ParameterError(f"batch is a size of the benchmarks of device 'gpu'; got {sizes.batch}")
    for n in lengths:
        positive_integer("n", n)


def _rows(
    device: Device, name: str, sizes: Sizes, rates: Rates | None, clock: Clock, rounds: int, seconds: float
) -> Iterator[Row]:
    try:
        entry = device.cases[name].make(sizes)
    except MissingExtra as error:
        yield {"case": name, "skipped": str(error)}
        return
    gauges = device.gauges(sizes, entry.work) if rates is None else {}
    raced = {**{_GAUGE + key: gauge.call for key, gauge in gauges.items()}, **entry.calls}
    rivals = [contestant for contestant in entry.calls if not contestant.startswith("ours")]
    times, failed = race(raced, clock, rounds, seconds, rivals)
    # the low quartile: a gauge that something else disturbed would tell of a floor that calls come in under
    rates = rates or rates_of(gauges, {key: times.pop(_GAUGE + key).low for key in gauges})
    fixed: Row = {"case": name, "sets": entry.sets, **device.facts(clock)}
    fixed |= {key: getattr(sizes, key) for key in ("batch", "heads", "n", "dim", "features", "dtype")}
    fixed |= {} if entry.dim is None else {"dim": entry.dim}
    ours = times["ours"].median / entry.sets if "ours" in times else None
    for contestant, time in times.items():
        median, low, high = (1e3 * taken / entry.sets for taken in (time.median, time.low, time.high))
        floors = _floors(entry.works.get(contestant, entry.work), rates)
        row: Row = {"contestant": contestant, **fixed, **floors, "median_ms": median, "low_ms": low, "high_ms": high}
        row |= {"turns": time.turns}
        row |= {"over_floor": median / floors["floor_ms"], "over_parts": median / floors["parts_ms"]}
        if floors["traffic_floor_ms"] > 0:
            row["over_traffic"] = median / floors["traffic_floor_ms"]
        if ours is not None:
            row["ratio"] = 1e-3 * median / ours
        if contestant in entry.errors:
            row["squared_error"] = entry.errors[contestant]()
        if contestant in entry.medians:
            row["median_error"] = entry.medians[contestant]()
        yield row
    for contestant, why in failed.items():
        floors = _floors(entry.works.get(contestant, entry.work), rates)
        yield {"contestant": contestant, **fixed, **floors, "failed": why}


def _floors(work: Work, rates: Rates) -> Row:
    traffic, products, functions = (1e3 * part for part in rates.parts(work))
    found = {"bytes": work.bytes, "flops": work.flops, "functions": work.functions}
    found |= {"traffic_floor_ms": traffic, "product_floor_ms": products, "function_floor_ms": functions}
    found |= {"floor_ms": 1e3 * rates.floor(work), "parts_ms": 1e3 * rates.in_turn(work)}
    found |= {"copy_bytes_per_second": rates.bytes, "product_flops_per_second": rates.flops}
    return found | ({"functions_per_second": rates.functions} if isfinite(rates.functions) else {})
