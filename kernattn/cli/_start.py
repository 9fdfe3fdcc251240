"""What a new process waits for: imports, the first call with compiled loops on disk, and their compilation without."""

import os
import subprocess
import sys
from collections.abc import Mapping
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from kernattn.bench._tables import number_column, text_column

START = (text_column("a new process", "what"), number_column("seconds", "seconds", ".2f"))

IMPORT = "import kernattn as ka"
CALL = "import numpy as np; x = np.ones((8, 256, 64), 'f4'); ka.causal_linear_attention(x, x, x, {phi})"
MAPS = {"elu + 1": "ka.features.elu1()", "FAVOR+": "ka.random_features(ka.kernels.Softmax(), 64, 256)"}


def _seconds(code: str, environment: Mapping[str, str]) -> float:
    timed = [sys.executable, "-c", f"from time import perf_counter as t; s = t(); {code}; print(t() - s)"]
    return float(subprocess.run(timed, env=dict(environment), capture_output=True, text=True, check=True).stdout)


def time_starts(rounds: int = 5) -> list[dict[str, Any]]:
    """Return seconds of new processes, medians of so many: imports included, the interpreter's own start not.

    The compilation runs once.
    """
    here = dict(os.environ)
    rows = [{"what": "import kernattn", "seconds": median(_seconds(IMPORT, here) for _ in range(rounds))}]
    for name, phi in MAPS.items():
        code = f"{IMPORT}; {CALL.format(phi=phi)}"
        _seconds(code, here)
        what = f"import and first causal call, {name}, loops on disk"
        rows.append({"what": what, "seconds": median(_seconds(code, here) for _ in range(rounds))})
    with TemporaryDirectory() as empty:
        seconds = _seconds(f"{IMPORT}; ka.warmup()", here | {"NUMBA_CACHE_DIR": empty})
    rows.append({"what": "import and kernattn.warmup(), nothing on disk", "seconds": seconds})
    return rows
