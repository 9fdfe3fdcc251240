"""``kernattn warmup``."""

import argparse
from typing import Any


def add_warmup(commands: Any) -> None:
    """Add ``warmup``."""
    parser = commands.add_parser(
        "warmup",
        help="compile the CPU's loops ahead of the first call",
        description="Compiles the loops of attention and features, and keeps them on disk for later processes. On an "
        "idle machine this takes less than a minute for each dtype, or a second if they are there already.",
    )
    parser.set_defaults(run=_compile_loops)
    choices = ("float32", "float64")
    parser.add_argument(
        "--dtypes", nargs="+", choices=choices, default=["float32"], help="of the arrays (default: float32)"
    )
    parser.add_argument("--gates", action="store_true", help="also compile gated linear attention and decays")
    parser.add_argument("--gradients", action="store_true", help="also compile the pullbacks of all these")


def _compile_loops(options: argparse.Namespace) -> None:
    from kernattn._warmup import warmup

    chosen = {"gates": options.gates, "gradients": options.gradients}
    for dtype, seconds in warmup(options.dtypes, **chosen, progress=True).items():
        print(f"{dtype}: {seconds:.1f} s")
