"""Sources with one barrier, or one wait for copies, taken out: a test suite that is worth something catches each."""

from __future__ import annotations

import re
from collections.abc import Iterator

WAITS = r"(?<!inline void )\bwait_for_copies\(\);|\bwait_for_groups<[\w -]+>\(\);"
BARRIER = re.compile(rf"__sync(?:threads|warp)\(\);|{WAITS}|__syncthreads_or(?=\()")


def without_one_barrier(source: str) -> Iterator[tuple[int, str]]:
    """Each (line number, source) in which exactly one is gone; of a vote each thread keeps its own."""
    for match in BARRIER.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        instead = ";" if match[0].endswith(";") else "bool"
        yield line, source[: match.start()] + instead + source[match.end() :]
