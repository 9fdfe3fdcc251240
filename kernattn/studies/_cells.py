"""One cell of a sweep: redraw until it stops, reduce the redraws to numbers, and write them as a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import shown
from kernattn._runtime.compiling import teller
from kernattn.errors import KernattnError, ParameterError
from kernattn.studies._means import mark_unsettled, means, read_settled
from kernattn.studies._records import ENDS, Record, seal
from kernattn.studies._sweep import RESERVED, Cell, Stop, Sweep

DIGITS = 8  # of the numbers in a record


class TrialFailed(KernattnError, RuntimeError):
    """A sweep's own function raised, or returned what no record can hold."""


def measure(sweep: Sweep, cell: Cell) -> Record:
    """Return the record of one cell; TrialFailed where a function of the sweep raises, or returns no such numbers."""
    started = _read_clock()
    try:
        with np.errstate(all="ignore"):
            fields, draws, stopped = _redraw(sweep, cell)
    except TrialFailed:
        raise
    except Exception as error:
        raise TrialFailed(f"{sweep.name}, cell {cell}: {type(error).__name__}: {error}") from error
    record = {
        "study": sweep.name,
        "version": sweep.version,
        "cell": cell.name,
        **{axis: list(value) if isinstance(value, tuple) else value for axis, value in cell.items()},
        **fields,
        "draws": draws,
        "stopped": stopped,
        "seed": sweep.streams(cell),
    }
    return seal(record) | {"seconds": round(_read_clock() - started, 6)}


def _read_clock() -> float:
    """Return seconds of a clock that stands still while loops are compiled."""
    return perf_counter() - teller.seconds


def _redraw(sweep: Sweep, cell: Cell) -> tuple[dict[str, Any], int, str]:
    """Return facts and numbers of a cell, how many redraws they are from, and why there are no more."""
    facts = dict(sweep.facts(cell)) if sweep.facts is not None else {}
    rows: list[Mapping[str, Any]] = []
    beside: list[Mapping[str, Any]] = []
    wanted, other = sweep.stop.draws, sweep.compared(cell)
    while True:
        rows += [sweep.trial(cell, sweep.generator(cell, draw)) for draw in range(len(rows), wanted)]
        draws = _stack(sweep, cell, rows)
        if other is not None:
            same = other == cell
            beside += [
                rows[draw] if same else sweep.trial(other, sweep.generator(other, draw))
                for draw in range(len(beside), wanted)
            ]
            draws |= _differences(draws, _stack(sweep, other, beside))
        fields = dict((sweep.reduce or _means)(cell, draws, facts))
        _check_stop(sweep, cell, fields)
        if stopped := _reason(sweep.stop, len(rows), facts | fields, next(iter(draws))):
            shape = tuple(len(values) for values in sweep.along.values())
            facts |= mark_unsettled(facts, fields)
            if twice := sorted(set(facts) & set(fields)):
                raise TrialFailed(f"{sweep.name}, cell {cell}: facts and trial both return {', '.join(twice)}")
            return _fields(sweep, cell, facts | fields, shape), len(rows), stopped
        wanted = min(2 * wanted, sweep.stop.limit)


def _differences(draws: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return what each redraw of a cell has more than that of another cell with the same random numbers."""
    pairs = ((name, values, others.get(name)) for name, values in draws.items())
    return {
        f"{name}_difference": values.astype(np.float64) - other.astype(np.float64)
        for name, values, other in pairs
        if other is not None and other.shape == values.shape
    }


def _stack(sweep: Sweep, cell: Cell, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the trials' results, field by field, redraws on the first axis."""
    first: Any = rows[0]
    if not isinstance(first, Mapping) or not first:
        raise TrialFailed(f"{sweep.name}, cell {cell}: a trial must return a mapping of fields; got {shown(first)}")
    if any(row.keys() != rows[0].keys() for row in rows):
        raise TrialFailed(f"{sweep.name}, cell {cell}: every trial must return the fields {', '.join(rows[0])}")
    draws = {name: np.stack([np.asarray(row[name]) for row in rows]) for name in rows[0]}
    given: Any
    for given, values in draws.items():
        if not isinstance(given, str) or values.dtype.kind not in "biuf":
            raise TrialFailed(
                f"{sweep.name}, cell {cell}: a trial must return real numbers by name; got {shown(given)}: "
                f"{shown(rows[0][given])}"
            )
    return draws


def _means(cell: Cell, draws: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return mean of every field over the redraws, with Student's 95% interval where these settle it."""
    del cell
    if ends := sorted({f"{name}_{end}" for name in draws for end in ("low", "high")} & set(draws)):
        raise ParameterError(f"a trial must not return {', '.join(ends)}, which are the ends of an interval")
    return means(facts, **draws)


def _check_stop(sweep: Sweep, cell: Cell, reduced: Mapping[str, Any]) -> None:
    """Raise unless redraws give the field that decides when to stop, and where there is a precision its interval."""
    name = sweep.stop.of
    needed = [] if name is None else [name, *([f"{name}_low", f"{name}_high"] if sweep.stop.precision else [])]
    if missing := [field for field in needed if field not in reduced]:
        raise TrialFailed(
            f"{sweep.name}, cell {cell}: Stop(of={name!r}) needs the fields {', '.join(needed)}; redraws give no "
            f"{' and no '.join(missing)}, but {', '.join(reduced)}"
        )


def _reason(stop: Stop, draws: int, reduced: Mapping[str, Any], first: str) -> str | None:
    """Return why a cell needs no more redraws, or None."""
    if stop.precision is None:
        return "draws"
    name = stop.of or first
    value, low, high = (np.asarray(reduced[f"{name}{end}"], np.float64) for end in ENDS)
    settled = np.broadcast_to(read_settled(reduced, name), value.shape)
    if not settled.any():
        return "unsettled"
    if np.all(np.maximum(high - value, value - low)[settled] <= stop.precision * np.abs(value[settled])):
        return "precision"
    return "most" if draws >= stop.limit else None


def _fields(sweep: Sweep, cell: Cell, reduced: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
    """Return plain values: null where a number is not finite."""
    taken = sorted(set(reduced) & {*RESERVED, *cell})
    if taken:
        raise TrialFailed(f"{sweep.name}, cell {cell}: a field must not be called {', '.join(taken)}")
    return {name: _plain(sweep, cell, name, value, shape) for name, value in reduced.items()}


def _plain(sweep: Sweep, cell: Cell, name: str, value: Any, shape: tuple[int, ...]) -> Any:
    if value is None or isinstance(value, str):
        return value
    array = np.asarray(value)
    if array.shape not in ((), shape) or array.dtype.kind not in "biuf":
        raise TrialFailed(
            f"{sweep.name}, cell {cell}: {name} must be a number, or numbers of the shape {shape} that `along` gives; "
            f"got {shown(value)} of shape {array.shape}"
        )
    return _round(array.astype(np.float64)) if array.dtype.kind == "f" else array.tolist()


def _round(array: Float64) -> Any:
    if array.ndim:
        return [_round(part) for part in array]
    return float(f"{array:.{DIGITS}g}") if np.isfinite(array) else None
