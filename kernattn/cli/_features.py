"""``kernattn features``."""

import argparse
import ast
import re
from pathlib import Path
from typing import Any

from kernattn.errors import ParameterError


def add_features(commands: Any) -> None:
    """Add ``features``."""
    parser = commands.add_parser(
        "features",
        help="features of the rows of a file, written to another",
        description="Writes the features of each row of a table. Memory does not grow with the rows. Run again to go "
        "on after an interruption.",
        epilog="Example: kernattn features rows.csv features.npy --kernel 'gaussian(lengthscale=2)' --num-features 512 "
        "--map map.npz; then, for new rows with the same map: kernattn features new.csv new.npy --map map.npz",
    )
    parser.set_defaults(run=_write_features)
    add = parser.add_argument
    add("source", type=Path, metavar="IN", help="rows (n, d): .npy, .npz, .csv or .tsv")
    add("out", type=Path, metavar="OUT", help="features (n, M): .npy, .npz, .csv or .tsv")
    add("--kernel", metavar="KERNEL", help="such as gaussian, 'gaussian(lengthscale=2)' or 'matern(nu=1.5)'")
    add("--num-features", type=int, metavar="M", help="number of features")
    add("--estimator", metavar="NAME", help="(default: the kernel's usual one)")
    add("--projection", metavar="NAME", help="(default: orthogonal)")
    add("--seed", type=int, metavar="S", help="of the draw (default: 0)")
    add("--map", type=Path, metavar="FILE.npz", help="the map: taken from there, or saved there if there is no file")
    add("--member", metavar="NAME", help="which array of an .npz file with several")
    add("--dtype", choices=("float32", "float64"), help="of the features (default: that of the rows)")


def _write_features(options: argparse.Namespace) -> None:
    from kernattn.features import load, transform_file
    from kernattn.features._tables import table
    from kernattn.features._transform_file import checked_places

    checked_places(options.source, options.out)
    if options.map is not None and options.map.resolve() == options.out.resolve():
        raise ParameterError(f"--map must be another file than OUT; got {options.out} for both")
    draw = {name: getattr(options, name) for name in ("kernel", "num_features", "estimator", "projection", "seed")}
    given = [f"--{name.replace('_', '-')}" for name, value in draw.items() if value is not None]
    kept = load(options.map) if options.map is not None and options.map.exists() else None
    if kept is not None and not given:
        phi = kept
    else:
        missing = [f"--{name}" for name in ("kernel", "num-features") if f"--{name}" not in given]
        if missing:
            raise ParameterError(f"a map to draw needs {' and '.join(missing)}; or give --map with the file of one")
        phi = _draw_map(draw, table(options.source, options.member).columns)
    if kept is not None:
        if phi.fingerprint != kept.fingerprint:
            raise ParameterError(f"{options.map} holds another map, {kept!r}; leave out {', '.join(given)} to take it")
    elif options.map is not None:
        phi.save(options.map)
    rows = transform_file(options.source, options.out, phi, member=options.member, dtype=options.dtype, progress=None)
    print(f"{rows} rows are in {options.out}, made by {phi!r}")


def _draw_map(draw: dict[str, Any], dim: int) -> Any:
    """Draw the map that the options ask for."""
    from kernattn.features import random_features

    more = {name: draw[name] for name in ("estimator", "projection") if draw[name] is not None}
    return random_features(_parse_kernel(draw["kernel"]), dim, draw["num_features"], rng=draw["seed"] or 0, **more)


def _parse_kernel(text: str) -> Any:
    """Return a kernel by its name, with parameters as keywords in brackets."""
    from kernattn._runtime.checks import shown
    from kernattn._runtime.elsewhere import hint_at
    from kernattn.kernels import KERNELS

    match = re.fullmatch(r"\s*(\w+)\s*(\(.*\))?\s*", text)
    name = "" if match is None else match[1].lower()
    if name not in KERNELS:
        raise ParameterError(
            f"--kernel must be one of {', '.join(KERNELS)}, with parameters in brackets; got {shown(text)}"
            f"{hint_at('kernel', name, KERNELS)}"
        )
    try:
        call: Any = ast.parse(f"f{match[2] or '()'}", mode="eval").body if match is not None else None
        parameters = {each.arg: ast.literal_eval(each.value) for each in call.keywords}
        if call.args or None in parameters:
            raise ValueError
        return KERNELS[name](**parameters)
    except ParameterError:
        raise
    except Exception as error:  # no call, no literals, or brackets too deep: RecursionError, and MemoryError of ast
        why = f": {str(error)[:200]}" if isinstance(error, TypeError) else ""
        raise ParameterError(f"--kernel takes parameters as {name}(name=number); got {shown(text)}{why}") from error
