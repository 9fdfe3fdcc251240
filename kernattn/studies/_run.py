"""Running a sweep: cells in this process or in workers, one writer, records in canonical order."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from os import PathLike
from queue import SimpleQueue
from typing import Any

from kernattn._environment import versions
from kernattn._runtime.checks import checked_path, shown
from kernattn._runtime.compiling import teller
from kernattn._runtime.extras import bar, has_bar
from kernattn._version import __version__
from kernattn.errors import ParameterError
from kernattn.studies._cells import measure
from kernattn.studies._means import FEWEST_OF_MEDIANS, medians
from kernattn.studies._records import Record, Records
from kernattn.studies._sweep import Cell, Sweep, integer
from kernattn.studies._worker import Worker, find_name, find_sweep


def run(
    sweep: Sweep | str,
    out: str | PathLike[str],
    *,
    workers: int = 0,
    progress: bool | None = False,
    settings: Mapping[str, Any] | None = None,
) -> list[Record]:
    """Measure the cells of a sweep that have no record yet: record = facts(cell) + mean_r trial(cell, rng_r).

    A cell's line is on the disk before it counts as done, so a study that was killed goes on where it was when the call
    is repeated. It can grow: with more values on its axes only new cells are measured. And it shrinks to what is asked:
    `out`/records.jsonl holds these cells, in the order of the sweep, and the others wait in records.spare.jsonl. But
    for fields that end in "seconds", the file's bytes do not depend on interruptions or on the number of workers.

    Parameters
    ----------
    sweep : Sweep or str
        The sweep; or its name, ``module:object``, an object or a function of `settings` that returns one.
    out : str or PathLike
        Folder of the study, created if needed.
    workers : int
        Processes of one thread each, which find the sweep by its name; 0 measures in this process, whose threads may
        change last digits.
    progress : bool or None
        Show a progress bar on stderr; None shows it on a terminal only. What the sweep prepares comes before.
    settings : mapping, optional
        Plain JSON values, for a sweep that is named as a function.

    Returns
    -------
    list of dict
        The records, one per cell, in canonical order.

    Raises
    ------
    StudyConflict
        `out` holds another study, or another process is writing to it.
    TrialFailed
        A function of the sweep raised; cells that were measured keep their records.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from kernattn.studies import Stop, Sweep, run
    >>> def trial(cell, rng):
    ...     return {"mean": rng.random(cell["n"]).mean()}
    >>> with TemporaryDirectory() as folder:
    ...     small = run(Sweep("uniform", {"n": (10,)}, trial, stop=Stop(draws=100)), folder)
    ...     both = run(Sweep("uniform", {"n": (10, 1000)}, trial, stop=Stop(draws=100)), folder)
    >>> small == both[:1], [record["mean_low"] < 0.5 < record["mean_high"] for record in both]
    (True, [True, True])
    """
    if settings and not isinstance(sweep, str):
        raise ParameterError(f"settings are for a sweep that is named as a function; got {shown(settings)}")
    home, settings = (sweep, dict(settings or {})) if isinstance(sweep, str) else (None, {})
    sweep = find_sweep(sweep, settings) if isinstance(sweep, str) else sweep
    if not isinstance(sweep, Sweep):
        raise ParameterError(f"sweep must be a Sweep or its name, 'module:object'; got {shown(sweep)}")
    cells = sweep.cells()
    config = _config(sweep, home, settings, len(cells))
    if integer("workers", workers, 0) and home is None:
        home = find_name(sweep)
    has_bar("a study", progress)  # else what it lacks shows after the compilation
    if not cells:
        raise ParameterError(f"the sweep {sweep.name} keeps no cell of its axes")
    if sweep.reduce is medians:
        integer("draws", sweep.stop.draws, FEWEST_OF_MEDIANS)
    with Records(checked_path("out", out), config, [cell.name for cell in cells]) as records:
        todo = [cell for cell in cells if cell.name not in records.done]
        if todo and sweep.prepare is not None:
            teller.expect()
            sweep.prepare()
        with (
            bar("a study", progress, unit="cell", total=len(cells), initial=len(cells) - len(todo)) as cells_done,
            closing(_measure_all(sweep, todo, home, settings, workers)) as measured,
        ):
            for record in measured:
                records.append(record)
                if cells_done is not None:
                    cells_done.update()
        return records.finish()


def _measure_all(
    sweep: Sweep, cells: Sequence[Cell], home: str | None, settings: Mapping[str, Any], workers: int
) -> Generator[Record]:
    """Yield records as they are done; after a failure those that are under way, and then the failure."""
    if not workers or home is None or not cells:
        yield from (measure(sweep, cell) for cell in cells)
        return
    processes = [Worker(home, settings) for _ in range(min(workers, len(cells)))]
    free: SimpleQueue[Worker] = SimpleQueue()
    for process in processes:
        free.put(process)
    failures: list[BaseException] = []

    def work(cell: Cell) -> Record | None:
        if failures:
            return None
        process = free.get()
        try:
            return process.measure(sweep, cell)
        except BaseException as error:
            failures.append(error)
            return None
        finally:
            free.put(process)

    pool = ThreadPoolExecutor(len(processes), thread_name_prefix="kernattn-study")
    try:
        for future in as_completed([pool.submit(work, cell) for cell in cells]):
            if (record := future.result()) is not None:
                yield record
    finally:
        for process in processes:
            process.end()
        pool.shutdown(cancel_futures=True)
    if failures:
        raise failures[0]


def _config(sweep: Sweep, home: str | None, settings: Mapping[str, Any], cells: int) -> dict[str, Any]:
    """Return the settings of a study, which readers of its records should know."""
    return {
        "study": sweep.name,
        "version": sweep.version,
        "kernattn": __version__,
        "axes": {axis: list(values) for axis, values in sweep.axes.items()},
        "along": {axis: list(values) for axis, values in sweep.along.items()},
        "paired": list(sweep.paired),
        **({"against": dict(sweep.against)} if sweep.against else {}),
        "draws": sweep.stop.draws,
        "precision": sweep.stop.precision,
        "most": sweep.stop.limit,
        "seed": sweep.seed,
        "cells": cells,
        "sweep": home,
        "settings": dict(settings),
        "versions": versions(),
    }
