"""Running the cases of a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from bench.sizes import Sizes, Watched
from kernattn._arrays.precision import precision
from kernattn._runtime.checks import positive_integer
from kernattn.bench import Clock, Column, Gauge, Rates, Work, race
from kernattn.bench._clock import Call
from kernattn.bench._race import Row
from kernattn.errors import MissingExtra, ParameterError


@dataclass(frozen=True, eq=False)
class Race:
    """Calls by contestant, "ours" among them, each over `sets` sets of inputs; the work of one set; squared errors.

    `works` has the work of contestants that do something else, which stands beside what "ours" does; `medians` the
    medians of absolute errors, where a few rows carry most of the squared ones; `dim` and `dtype` are what data have,
    or contestants take, whatever was given.
    """

    calls: Mapping[str, Call]
    work: Work
    sets: int = 1
    errors: Mapping[str, Callable[[], float]] = field(default_factory=dict)
    works: Mapping[str, Work] = field(default_factory=dict)
    medians: Mapping[str, Callable[[], float]] = field(default_factory=dict)
    dim: int | None = None
    dtype: str | None = None


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


def race_cases(
    device: Device,
    names: Sequence[str] | None = None,
    sizes: Sizes | None = None,
    lengths: Sequence[int] | None = None,
    rounds: int = 15,
    clock: Clock | None = None,
    rates: Rates | None = None,
    report: Callable[[list[Row]], None] = lambda rows: None,
) -> list[Row]:
    """Race cases against their peers for every length: the rows of `kernattn.bench.race`, with sizes and errors.

    Names, sizes and lengths are the device's unless given; n of `sizes` is replaced by each length, and a case whose
    number of rows is fixed runs once. `report` is told all rows so far after each race, so that they can be kept. Of a
    case whose data need a package that is not installed there is one row of case and skipped, the reason.
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
                rows += _rows(device, name, sizes.but(n=n), rates, clock, rounds)
                report(rows)
    return rows


def unread(
    device: Device, names: Sequence[str], sizes: Sizes, lengths: Sequence[int], given: Sequence[str]
) -> list[str]:
    """Return which of the sizes that were given no case reads: cases are made, until all are seen to be read.

    A case that lacks a package may read them all.
    """
    _check(device, names, sizes, lengths)
    left = list(given)
    for name in names:
        if not left:
            break
        case = device.cases[name]
        watched = Watched.of(sizes.but(n=lengths[0] if case.n is None else case.n))
        try:
            case.make(watched)
        except MissingExtra:
            return []
        left = [size for size in left if size not in watched.read]
    return left


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


def _rows(device: Device, name: str, sizes: Sizes, rates: Rates | None, clock: Clock, rounds: int) -> Iterator[Row]:
    try:
        entry = device.cases[name].make(sizes)
    except MissingExtra as error:
        yield {"case": name, "skipped": str(error)}
        return
    sizes = sizes if entry.dtype is None else sizes.but(dtype=entry.dtype)
    fixed: Row = {"case": name, "sets": entry.sets, **device.facts(clock)}
    fixed |= {key: getattr(sizes, key) for key in ("batch", "heads", "n", "dim", "features", "dtype")}
    fixed |= {} if entry.dim is None else {"dim": entry.dim}
    for row in race(
        entry.calls,
        entry.work,
        works=entry.works,
        sets=entry.sets,
        rounds=rounds,
        rivals=[contestant for contestant in entry.calls if not contestant.startswith("ours")],
        clock=clock,
        rates=device.gauges(sizes, entry.work) if rates is None else rates,
    ):
        contestant = row["contestant"]
        if "failed" not in row:
            for key, errors in (("squared_error", entry.errors), ("median_error", entry.medians)):
                row |= {key: errors[contestant]()} if contestant in errors else {}
        yield fixed | row
