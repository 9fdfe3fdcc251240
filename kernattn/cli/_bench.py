"""``kernattn bench``: the cases of the repository, found in a folder of it, and what needs none."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from kernattn.cli._arguments import Parser
from kernattn.errors import ParameterError

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
    bench.set_defaults(run=_bench)
    bench.fill, bench.end = _add_options, _cases
    bench.add_argument("--start", action="store_true", help="cpu: what a new process waits for, and the compilation")
    _add_from(bench)


def _add_from(parser: argparse.ArgumentParser) -> None:
    about = "the cases (default: %(default)s)"
    parser.add_argument("--from", type=Path, default=FOLDER, dest="folder", metavar="FOLDER", help=about)


def _add_options(bench: Parser, words: Sequence[str]) -> None:
    """Add the options of the cases, which stand beside them; without cases only --start and --help work."""
    parent = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    _add_from(parent)
    try:
        cases = load(parent.parse_known_args(words)[0].folder)
    except ParameterError:
        if set(words) <= {"--start", "--help", "-h"}:
            return
        raise
    import_module(f"{cases.__name__}.command").add_options(bench)


def _cases() -> str:
    """Return the names of the cases, device by device, or where they are to be had."""
    try:
        bench = load(FOLDER)
    except ParameterError:
        return f"Of the options, --start works here; {HOME}."
    return " ".join(f"Cases on device {name}: {', '.join(bench.cases(name))}." for name in bench.DEVICES)


def load(folder: Path) -> ModuleType:
    """Import a folder as a package of its name; what lies beside it is not on the path."""
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


def _bench(options: argparse.Namespace) -> None:
    if options.start and not options.folder.is_dir():
        from kernattn.bench import table
        from kernattn.cli._start import START, time_starts

        print(table(time_starts(), START))
        return
    import_module(f"{load(options.folder).__name__}.command").run(options)
