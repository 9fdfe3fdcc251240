"""Exact kernel regression on more rows than have a kernel matrix in memory: time, the most memory, and errors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from kernattn._runtime.parallel import threads
from kernattn.bench._tables import number_column, text_column

EXACT = (
    text_column("rows", "rows", right=True),
    text_column("d", "dim", right=True),
    text_column("threads", "threads", right=True),
    text_column("tolerance", "tolerance", right=True),
    text_column("landmarks", "landmarks", right=True),
    text_column("steps", "steps", right=True),
    number_column("seconds", "seconds", ".0f"),
    number_column("CPU seconds", "cpu_seconds", ".0f"),
    number_column("peak resident, MB", "peak_bytes", ".0f", 1e6),
    number_column("residual", "residual", ".1e"),
    number_column("squared error", "squared_error", ".2f"),
    number_column("median error", "median_error", ".3f"),
    number_column("beyond the last, %", "beyond", ".2f", 1e-2),
)

CASES = Path(__file__).parents[2]
TOLERANCES = (1e-3, 1e-5)


def exact(rows: int = 100_000) -> list[dict[str, Any]]:
    r"""Fit minutes of delay of so many flights with a Matern kernel, :math:`(K + 0.1) w = y`, in a process of its own.

    There is a row for each tolerance: a fit, and what goes on from it. Seconds, steps and memory are of all until
    then, errors on 10,000 flights that were not fitted.
    """
    given = json.dumps({"rows": rows, "tolerances": TOLERANCES})
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(CASES), *filter(None, sys.path)])}
    words = [sys.executable, "-m", "bench.cpu.exact_child", given]
    done = subprocess.run(words, env=variables, stdout=subprocess.PIPE, text=True, check=True)
    said = [json.loads(line) for line in done.stdout.splitlines()]
    return [
        each | {"threads": threads(), "beyond": each["squared_error"] / said[-1]["squared_error"] - 1} for each in said
    ]
