"""``kernattn bench``: the cases of the repository, found in a folder of it, and what needs none."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = Path("docs/bench")

HOME = "cases live in the repository of kernattn: clone it and run this from its root, or give --from FOLDER"


def add_bench(commands: Any) -> None:
    bench = commands.add_parser(
        "bench",
        help="race the ops against their floor and their peers",
        description="Times our ops, and every peer that can be imported, in alternation in one process, and sets each "
        "beside the floor measured in the same run. Sizes default to those of the device. Cases are found in a clone "
        "of the repository; kernattn.bench races callables of your own anywhere.",
    )
    bench.set_defaults(run=partial(_bench, bench))
    bench.end = _cases
    add = bench.add_argument
    add(
        "what",
        nargs="?",
        choices=("generate",),
        help="cpu: whole generations by a transformer, --n steps of each (default: 784, 3072 and 12288)",
    )
    add("--from", type=Path, default=FOLDER, dest="folder", metavar="FOLDER", help="the cases (default: %(default)s)")
    add("--device", choices=("cpu", "gpu"), default="cpu", help="(default: %(default)s)")
    add(
        "--cases",
        nargs="+",
        metavar="NAME",
        help="cases to race (default: all, or none with --scaling, --start or --stream)",
    )
    add("--list", action="store_true", help="say what each case races, and race nothing")
    add("--n", type=int, nargs="+", metavar="N", help="tokens, one or several (default: 4096; gpu: 2048 to 65536)")
    add("--batch", type=int, metavar="B", help="gpu: batch (default: 4)")
    add("--heads", type=int, metavar="H", help="heads (default: 8; gpu: 16)")
    add("--dim", type=int, metavar="D", help="dimension of queries, keys and values (default: 64; gpu: 128)")
    add("--features", type=int, default=256, metavar="M", help="features of a map (default: %(default)s)")
    add("--dtype", help="float32 or float64; gpu: also bfloat16, float16, tf32 (default: float32; gpu: bfloat16)")
    add("--rounds", type=int, default=15, help="turns of every contestant (default: %(default)s)")
    add("--asleep", action="store_true", help="cpu: turns begin after a rest, and are one call each")
    add("--scaling", action="store_true", help="cpu: time and memory for n from 2^10 to 2^20, and their figure")
    add("--backward", action="store_true", help="with --scaling: forward and backward, to 2^18, with fitted slopes")
    add("--start", action="store_true", help="cpu: what a new process waits for, and the compilation of the loops")
    add("--stream", action="store_true", help="cpu: moments of a file of rows: rate, peak memory, killed and resumed")
    add("--rows", type=int, metavar="N", help="with --stream: rows of --dim columns (default: 10000000)")
    add("--page", type=Path, metavar="FILE.md", help="cpu: make the tables of a page anew, all its runs in one go")
    add("--out", type=Path, metavar="DIR", help="write the rows as JSON, the tables and the figure there")


def _cases() -> str:
    """Return the names of the cases, device by device, or where they are to be had."""
    from kernattn.errors import ParameterError

    try:
        bench = load(FOLDER)
    except ParameterError:
        return f"Of the options, --start works here; {HOME}."
    return " ".join(f"Cases on device {name}: {', '.join(bench.cases(name))}." for name in bench.DEVICES)


def load(folder: Path) -> ModuleType:
    """Import a folder as a package of its name; what lies beside it is not on the path.

    Raises
    ------
    ParameterError
        If there is no package of cases in the folder.
    """
    from kernattn.errors import ParameterError

    folder = folder.resolve()
    file, name = folder / "__init__.py", folder.name
    if not (file.is_file() and (folder / "command.py").is_file()):
        raise ParameterError(
            f"there is no package of cases in {folder}: {HOME}; kernattn.bench races callables of your own anywhere"
        )
    loaded = sys.modules.get(name)
    if loaded is not None and loaded.__file__ == str(file):
        return loaded
    spec = spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ParameterError(f"{file} cannot be imported")
    sys.modules[name] = module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _bench(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    given = {name for name, value in vars(options).items() if value != parser.get_default(name)}
    if given == {"start"} and not FOLDER.is_dir():
        from kernattn.bench import table
        from kernattn.cli._start import START, time_starts

        print(table(time_starts(), START))
        return
    import_module(f"{load(options.folder).__name__}.command").run(options)
