"""Moments of more rows than memory: their rate, the most memory they take, and the bits after a kill."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.lib.format import header_data_from_array_1_0, write_array_header_1_0

from kernattn._runtime.parallel import threads
from kernattn.bench._tables import Column, number_column, text_column

STREAM = (
    text_column("rows", "rows", right=True),
    text_column("d", "dim", right=True),
    text_column("M", "features", right=True),
    text_column("threads", "threads", right=True),
    number_column("file, GB", "file_bytes", ".2f", 1e9),
    text_column("mapped", "mapped"),
    number_column("seconds", "seconds", ".1f"),
    number_column("rows a second", "rows_per_second", ",.0f"),
    number_column("rows a second of a core", "rows_per_cpu_second", ",.0f"),
    number_column("GFLOP/s of a core", "flops_per_cpu_second", ".1f", 1e9),
    number_column("peak resident, MB", "peak_bytes", ".0f", 1e6),
    number_column("sums, MB", "state_bytes", ".1f", 1e6),
    Column(
        "killed and resumed; mapped once",
        lambda row: {True: "the same bits", False: "**other bits**"}[row["same_bits"]],
        False,
    ),
)

RUN = Path(__file__).with_name("stream_child.py")


def stream(
    rows: int = 10_000_000, dim: int = 64, features: int = 256, block: int | None = None
) -> list[dict[str, Any]]:
    r"""Add up the moments of rows in a file, :math:`G = \sum_i \phi(x_i) \phi(x_i)^T`, in processes of their own.

    Rows are float32, and lie in a temporary folder, in a file that is mapped to memory anew for each block, of
    2^24 / features rows unless told. A first process adds up all of them; a second is killed (SIGKILL) at three fifths
    of the blocks, and a third goes on from its checkpoint. A fourth maps the file once. There is a row for the first
    and for the fourth, which says whether the third has the bits of the first, or the fourth has them.
    """
    block = max(1, 2**24 // features) if block is None else block
    with TemporaryDirectory() as folder:
        _write(Path(folder), rows, dim)
        given = {"folder": folder, "features": features, "block": block, "once": False}
        whole = _run(given | {"checkpoint": f"{folder}/whole.npz", "every": 60.0})
        cut = given | {"checkpoint": f"{folder}/cut.npz", "every": whole["seconds"] / 5}
        _run(cut, kill=(rows // block * 3) // 5)
        again = _run(cut)
        other = _run(given | {"checkpoint": f"{folder}/once.npz", "every": 60.0, "once": True})
    fixed = {"rows": rows, "dim": dim, "features": features, "block": block, "threads": threads()}
    fixed |= {"file_bytes": 4 * rows * dim, "state_bytes": 8 * features**2}
    return [
        fixed | {"mapped": how} | _rates(run, rows, features * (dim + features + 1)) | {"same_bits": same}
        for how, run, same in (
            ("anew for each block", whole, again["digest"] == whole["digest"]),
            ("once", other, other["digest"] == whole["digest"]),
        )
    ]


def _rates(run: dict[str, Any], rows: int, flops: int) -> dict[str, Any]:
    rate = rows / run["cpu_seconds"]
    return {
        "seconds": run["seconds"],
        "rows_per_second": rows / run["seconds"],
        "rows_per_cpu_second": rate,
        "flops_per_cpu_second": flops * rate,
        "peak_bytes": run["peak_bytes"],
    }


def _write(folder: Path, rows: int, dim: int) -> None:
    """Write rows and targets, a part at a time."""
    rng, part = np.random.default_rng(0), 1 << 16
    with (folder / "x.npy").open("wb") as x, (folder / "y.npy").open("wb") as y:
        for file, shape in ((x, (rows, dim)), (y, (rows,))):
            header = header_data_from_array_1_0(np.empty(0, np.float32))
            write_array_header_1_0(file, header | {"shape": shape})
        for first in range(0, rows, part):
            block = rng.standard_normal((min(part, rows - first), dim), dtype=np.float32)
            block.tofile(x)
            np.sin(block[:, 0]).tofile(y)


def _run(given: dict[str, Any], kill: int | None = None) -> dict[str, Any]:
    """Return what a process says of its sums; kill it where it comes to a block."""
    with subprocess.Popen([sys.executable, str(RUN), json.dumps(given)], stdout=subprocess.PIPE, text=True) as process:
        said: dict[str, Any] = {}
        for line in process.stdout or ():
            said = json.loads(line)
            if said.get("block") == kill is not None:
                process.send_signal(signal.SIGKILL)
                return said
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, str(RUN))
    return said
