"""What `kernattn bench` does with the cases of this folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bench import Device, Sizes, cases, device, race_cases, write
from bench.races import unread
from kernattn._runtime.checks import positive_integer
from kernattn.bench import HostClock, table
from kernattn.cli import _start
from kernattn.errors import ParameterError

Rows = list[dict[str, Any]]
SIZES = ("batch", "heads", "dim", "features", "dtype")
READ = {  # by what is no case; cases are asked
    "exact": (),
    "generate": ("batch", "heads", "dim", "rounds"),
    "tables": ("seeds",),
    "page": (),
    "scaling": ("heads", "dim", "features"),
    "start": (),
    "stream": ("dim", "features"),
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes where these cases are."""
    add = parser.add_argument
    add(
        "what",
        nargs="?",
        choices=("exact", "generate", "tables"),
        help="cpu: kernel regression of --n flights without landmarks (default: 100000); or whole generations by a "
        "transformer, --n steps of each (default: 784, 3072 and 12288); or estimators on real tables, whose names are "
        "--cases, with CPU seconds on one thread",
    )
    add("--device", choices=("cpu", "gpu"), default="cpu", help="(default: %(default)s)")
    add(
        "--cases",
        nargs="+",
        metavar="NAME",
        help="cases to race (default: all, or none with --scaling, --start or --stream)",
    )
    add("--list", action="store_true", help="say what each case races, and race nothing")
    add(
        "--n",
        type=int,
        nargs="+",
        metavar="N",
        help="tokens, one or several, where a case does not fix them (default: 4096; gpu: 2048 to 65536)",
    )
    add("--batch", type=int, metavar="B", help="gpu: batch (default: 4)")
    add("--heads", type=int, metavar="H", help="heads (default: 8; gpu: 16)")
    add("--dim", type=int, metavar="D", help="dimension of queries, keys and values (default: 64; gpu: 128)")
    add("--features", type=int, metavar="M", help="features of a map (default: 256)")
    add("--dtype", help="float32 or float64; gpu: also bfloat16, float16, tf32 (default: float32; gpu: bfloat16)")
    add("--rounds", type=int, help="turns of every contestant (default: 15; generate: 7, and no more)")
    add("--asleep", action="store_true", help="cpu: turns begin after a rest, and are one call each")
    add("--scaling", action="store_true", help="cpu: time and memory for n from 2^10 to 2^20, and their figure")
    add("--backward", action="store_true", help="with --scaling: forward and backward, to 2^18, with fitted slopes")
    add("--stream", action="store_true", help="cpu: moments of a file of rows: rate, peak memory, killed and resumed")
    add(
        "--rows",
        type=int,
        metavar="N",
        help="with --stream: rows of --dim columns (default: 10000000); tables: learn from no more than these",
    )
    add("--page", type=Path, metavar="FILE.md", help="cpu: make the tables of a page anew, all its runs in one go")
    add("--seeds", type=int, metavar="S", help="tables: splits of each (default: 5)")
    add("--models", nargs="+", metavar="NAME", help="tables: contestants to race (default: all)")
    add("--anew", action="store_true", help="tables: measure again what --out holds of --models")
    add("--out", type=Path, metavar="DIR", help="write the rows as JSON, the tables and the figure there")


def run(options: argparse.Namespace) -> None:
    """Do what the options of the command ask for."""
    if options.what == "tables":
        _check_sizes(options)
        from bench.cpu.tabular.command import run_tables

        run_tables(options)
        return
    if options.list:
        listed = cases(options.device)
        width = max(map(len, listed))
        print(*(f"{name:{width}}  {case.about}" for name, case in listed.items()), sep="\n")
        return
    on = device(options.device)
    _check(options, on)
    if options.page is not None:
        from bench.cpu.page import make_page

        make_page(options.page, on.columns, lambda line: print(line, file=sys.stderr, flush=True))
    elif options.what == "generate":
        _generate(options, on.machine())
    elif options.what == "exact":
        _exact(options, on.machine())
    else:
        _race(options, on)


def _check(options: argparse.Namespace, on: Device) -> None:
    of_cpu = ("what", "scaling", "start", "stream", "asleep", "page")
    if on.name != "cpu" and any(getattr(options, name) for name in of_cpu):
        raise ParameterError(
            "exact, generate, --scaling, --start, --stream, --asleep and --page are for device 'cpu'; "
            "on a GPU, give several --n"
        )
    if options.rows is not None:
        if not options.stream:
            raise ParameterError("--rows says how many --stream adds up; give both")
        positive_integer("rows", options.rows)
    if options.backward and not options.scaling:
        raise ParameterError("--backward says what --scaling times; give both")
    if options.models is not None or options.anew:
        raise ParameterError("--models and --anew are options of `kernattn bench tables`")
    _check_sizes(options)
    _check_cases(options, on)


def _check_sizes(options: argparse.Namespace) -> None:
    """Raise where a size, or a number of turns or splits, was given and nothing that was asked for reads it."""
    parts = [name for name in READ if name == options.what or getattr(options, name, False)]
    if options.what is not None or options.page is not None:
        parts = [options.what or "page"]
    cases_too = options.cases is not None or not parts
    reads = {name for part in parts for name in READ[part]} | ({"rounds", *SIZES} if cases_too else set())
    _refuse([name for name in (*SIZES, "rounds", "seeds") if getattr(options, name) is not None and name not in reads])


def _refuse(names: Sequence[str]) -> None:
    if names:
        flags = ", ".join(f"--{name}" for name in names)
        raise ParameterError(f"nothing that was asked for takes {flags}; leave out what is not heeded")


def _check_cases(options: argparse.Namespace, on: Device) -> None:
    """Raise where --cases or --n would not be heeded."""
    alone = options.what or ("--page" if options.page is not None else "")
    if alone and options.cases is not None:
        raise ParameterError(f"{alone} races no cases; leave --cases out")
    if options.n is None or options.what is not None:
        return
    if options.page is not None or (options.cases is None and (options.scaling or options.start or options.stream)):
        raise ParameterError("--n is of cases, exact and generate; nothing that was asked for takes it")
    fixed = {name: on.cases[name].n for name in options.cases or () if name in on.cases}
    wrong = [f"{name}, {n}" for name, n in fixed.items() if n is not None and options.n != [n]]
    if wrong:
        raise ParameterError(f"--n is not of cases whose n is fixed ({'; '.join(wrong)}); race these without it")


def _race(options: argparse.Namespace, on: Device) -> None:
    given = {name: value for name in SIZES if (value := getattr(options, name)) is not None}
    sizes = on.sizes.but(**given)
    if options.cases is not None:
        others = [name for name in ("scaling", "stream") if getattr(options, name)]
        of_cases = [name for name in given if not any(name in READ[other] for other in others)]
        _refuse(unread(on, options.cases, sizes, options.n or on.lengths, of_cases))
    clock = HostClock(asleep=True) if options.asleep else None
    none = options.cases is None and (options.scaling or options.start or options.stream)

    def keep(rows: Rows, parts: list[str], more: dict[str, Any]) -> None:
        if options.out is not None:
            write(options.out, "bench" if on.name == "cpu" else "bench-gpu", on.machine(), rows, parts, **more)

    report = _printer(on.columns, lambda rows, whole: keep(rows, [whole], {}))
    names = [] if none else options.cases
    rounds = 15 if options.rounds is None else options.rounds
    rows = race_cases(on, names, sizes, options.n, rounds, clock=clock, report=report)
    parts: list[str] = [] if none else [table(rows, on.columns)]
    more: dict[str, Any] = {}
    draw = None
    if options.scaling:
        more, part, draw = _scaling(sizes, options.backward)
        parts.append(part)
    if options.start:
        more["start"] = _start.time_starts()
        parts.append(table(more["start"], _start.START))
    if options.stream:
        from bench.cpu.stream import STREAM, stream

        more["stream"] = stream(options.rows or 10_000_000, sizes.dim, sizes.features)
        parts.append(table(more["stream"], STREAM))
    for part in parts[not none :]:
        print(part)
    keep(rows, parts, more)
    if draw is not None and options.out is not None:
        draw(options.out)


def _printer(columns: Any, keep: Callable[[Rows, str], None]) -> Callable[[Rows], None]:
    """Return what prints the lines of a growing table that are new, and keeps the rows and the whole of it."""
    told = 0

    def report(rows: Rows) -> None:
        nonlocal told
        whole = table(rows, columns)
        print(*whole.splitlines()[told:], sep="\n", flush=True)
        told = len(rows) + 2
        keep(rows, whole)

    return report


def _generate(options: argparse.Namespace, machine: str) -> None:
    from bench.cpu.generate.races import GENERATION, generation

    def keep(rows: Rows, whole: str) -> None:
        if options.out is not None:
            write(options.out, "bench", machine, [], [whole], generation=rows)

    sizes = {name: value for name in ("heads", "dim") if (value := getattr(options, name)) is not None}
    batches = (1, 32) if options.batch is None else (options.batch,)
    rounds = 7 if options.rounds is None else min(options.rounds, 7)
    report = _printer(GENERATION, keep)
    generation(options.n or (784, 3072, 12288), batches, rounds=rounds, report=report, **sizes)


def _exact(options: argparse.Namespace, machine: str) -> None:
    from bench.cpu.exact import EXACT, exact

    rows = [row for n in options.n or (100_000,) for row in exact(n)]
    print(table(rows, EXACT))
    if options.out is not None:
        write(options.out, "bench", machine, [], [table(rows, EXACT)], exact=rows)


def _scaling(sizes: Sizes, backward: bool) -> tuple[dict[str, Any], str, Callable[[Path], None]]:
    """Return the rows by name, their table, and what draws them into a folder."""
    from bench.cpu import scaling, scaling_backward

    of = sizes.heads, sizes.dim, sizes.features
    if backward:
        rows = scaling_backward.scaling_backward([2**i for i in range(10, 19)], *of)
        draw = scaling_backward.scaling_backward_figure
        return {"scaling_backward": rows}, table(rows, scaling_backward.SCALING_BACKWARD), lambda to: draw(to, rows)
    rows = scaling.scaling([2**i for i in range(10, 21)], *of)
    return {"scaling": rows}, table(rows, scaling.SCALING), lambda to: scaling.scaling_figure(to, rows)
