"""PyTorch's MKL at its best: on processors of another maker it takes slower paths, unless a function says otherwise."""

from __future__ import annotations

import subprocess
from pathlib import Path

_SOURCE = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"


def fastest_mkl(folder: Path) -> dict[str, str]:
    """Return what makes MKL take the paths of the instructions that there are: a library that is loaded before it.

    It is built in a folder that must last as long as its users; nothing is returned where there is no C compiler, or
    where the linker does not know this way.
    """
    source, library = folder / "mkl_switch.c", folder / "mkl_switch.so"
    source.write_text(_SOURCE)
    try:
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        return {}
    return {"LD_PRELOAD": str(library)}
