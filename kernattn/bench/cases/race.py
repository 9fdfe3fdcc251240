"""What a race is: its sizes, our call, the peers' calls and the work that nobody can avoid."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernattn._array import Host
from kernattn._parallel import VARIABLE
from kernattn.bench.floor import Work

__all__ = ["Call", "Options", "Race", "normal", "one_thread"]

Call = Callable[[], Any]


@dataclass(frozen=True)
class Options:
    """Sizes of the inputs."""

    n: int = 4096
    heads: int = 8
    dim: int = 64
    features: int = 256
    dtype: str = "float32"
    seed: int = 0


@dataclass
class Race:
    """Our call, the peers' calls, and the work."""

    ours: Call
    rivals: dict[str, Call]
    work: Work
    errors: dict[str, Callable[[], float]] = field(default_factory=dict)


def normal(o: Options, *shapes: tuple[int, ...]) -> list[Host]:
    """Return arrays of standard normal numbers, in the dtype of the options."""
    rng = np.random.default_rng(o.seed)
    return [rng.standard_normal(shape).astype(o.dtype) for shape in shapes]


def one_thread(call: Call) -> Call:
    """Return the call on one thread of ours."""

    def alone() -> Any:
        before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = "1"
        try:
            return call()
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before

    return alone
