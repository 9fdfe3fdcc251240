"""A race, as a row for each contestant."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from statistics import median, quantiles
from typing import Any

from kernattn._runtime.checks import positive_integer, shown
from kernattn.bench._clock import Call, Clock, HostClock
from kernattn.bench._floors import Gauge, Rates, Work
from kernattn.bench._turns import take_turns
from kernattn.errors import BackendUnavailable, ParameterError
from kernattn.ops.dispatch import missing

Row = dict[str, Any]

GAUGE = "gauge of "  # a contestant that no row tells of
BOUNDS = {"over_floor": "floor_ms", "over_parts": "parts_ms", "over_traffic": "traffic_floor_ms"}


def race(
    calls: Mapping[str, Call],
    work: Work | None = None,
    *,
    works: Mapping[str, Work] | None = None,
    sets: int = 1,
    rounds: int = 15,
    seconds: float = 15.0,
    rivals: Collection[str] | None = None,
    clock: Clock | None = None,
    rates: Rates | Mapping[str, Gauge] | None = None,
    dtype: str = "float32",
) -> list[Row]:
    r"""Time calls in turns, with :math:`ratio = t / t_{first}`, and :math:`t / t_{floor}` where their work is given.

    Parameters
    ----------
    calls : mapping of str to callable
        Contestants by name. A call takes no argument, and returns when its work is done, unless the clock waits for it.
    work : Work, optional
        What no contestant can avoid; without it there are no floors.
    works : mapping of str to Work, optional
        The work of contestants that do something else.
    sets : int
        How many times a call does its work; times are of one.
    rounds : int
        Turns of every contestant.
    seconds : float
        Time after which the race stops early, once each contestant had three turns.
    rivals : collection of str, optional
        Contestants that may fail: their row says why. Default all but the first.
    clock : Clock, optional
        What marks moments; default `HostClock`.
    rates : Rates or mapping of str to Gauge, optional
        Rates of the floors; or gauges of "bytes", "flops" and "functions" that show them, and take turns with the
        contestants. Default gauges of all cores, which need Numba.
    dtype : {"float32", "float64"}
        Dtype of what the default gauges multiply.

    Returns
    -------
    list of dict
        Rows of contestant, median_ms, low_ms and high_ms (quartiles), turns and ratio; with `work` also floor_ms
        (traffic beside arithmetic), parts_ms (one after the other), what these are made of, and the time over them. A
        rival that failed has the field failed.

    Raises
    ------
    ParameterError
        If calls are no mapping of names to callables, or the number of rounds is not positive.
    BackendUnavailable
        If the default gauges are needed and Numba is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.bench import Rates, Work, race
    >>> x = np.ones((64, 64))
    >>> calls = {"in place": lambda: np.exp(-x, out=x), "new": lambda: np.exp(-x)}
    >>> rows = race(calls, Work(bytes=2 * x.nbytes), rounds=3, rates=Rates(bytes=1e10, flops=1e11))
    >>> [row["contestant"] for row in rows], rows[0]["ratio"]
    (['in place', 'new'], 1.0)
    """
    given: Any = calls
    if not (isinstance(given, Mapping) and given and all(map(callable, given.values()))):
        raise ParameterError(f"calls must be a mapping of names to callables, at least one; got {shown(calls)}")
    positive_integer("rounds", rounds)
    first, *others = calls
    gauges = {} if work is None or isinstance(rates, Rates) else _core_gauges(work, dtype) if rates is None else rates
    raced = {**{GAUGE + kind: gauge.call for kind, gauge in gauges.items()}, **calls}
    clock = HostClock() if clock is None else clock
    times, failed = take_turns(raced, clock, rounds, seconds, others if rivals is None else rivals)
    if gauges:
        # the low quartile: a gauge that something else disturbed would tell of a floor that calls come in under
        measured = {kind: gauge.amount / _quartiles(times.pop(GAUGE + kind))[0] for kind, gauge in gauges.items()}
        rates = Rates(**measured)
    rows: list[Row] = []
    for name in (*times, *failed):
        row: Row = {"contestant": name}
        if isinstance(rates, Rates) and work is not None:
            row |= rates.floors((works or {}).get(name, work))
        if name in failed:
            row["failed"] = failed[name]
        else:
            low, middle, high = (1e3 * taken / sets for taken in _quartiles(times[name]))
            row |= {"median_ms": middle, "low_ms": low, "high_ms": high, "turns": len(times[name])}
            row |= {key: middle / row[bound] for key, bound in BOUNDS.items() if row.get(bound)}
            row |= {"ratio": median(times[name]) / median(times[first])} if first in times else {}
        rows.append(row)
    return rows


def _core_gauges(work: Work, dtype: str) -> Mapping[str, Gauge]:
    reason = missing("cpu")
    if reason is not None:
        raise BackendUnavailable(f"floors are measured by compiled loops: {reason}; give rates, or no work")
    from kernattn.bench._gauges import core_gauges

    return core_gauges(work, dtype)


def _quartiles(taken: list[float]) -> list[float]:
    return quantiles(taken, n=4, method="inclusive") if len(taken) > 1 else taken * 3
