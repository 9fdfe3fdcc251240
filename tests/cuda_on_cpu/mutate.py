"""Sources with one barrier taken out: a test suite that is worth something catches each."""

from __future__ import annotations

import re
from collections.abc import Iterator

BARRIER = re.compile(r"__sync(?:threads|warp)\(\);")


def without_one_barrier(source: str) -> Iterator[tuple[int, str]]:
    """Each (line number, source) in which exactly one ``__syncthreads();`` or ``__syncwarp();`` is gone."""
    for match in BARRIER.finditer(source):
        line = source.count("\n", 0, match.start()) + 1
        yield line, source[: match.start()] + ";" + source[match.end() :]
