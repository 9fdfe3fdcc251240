"""What a projection is: a recipe that draws frequencies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._array import Host
from kernattn._check import positive_integer
from kernattn._random import RNG, generator
from kernattn.errors import ParameterError
from kernattn.projections.norms import NORM_LAWS

__all__ = ["Projection"]


@dataclass(frozen=True)
class Projection(ABC):
    """A recipe for frequencies: uniform directions of some joint law, times norms drawn on their own."""

    norms: str = "chi"

    def __post_init__(self) -> None:
        """Check the name of the norm law."""
        if self.norms not in NORM_LAWS:
            raise ParameterError(f"norms must be one of {', '.join(NORM_LAWS)}; got {self.norms!r}")

    @final
    def draw(self, m: int, d: int, rng: RNG = None) -> Host:
        """Return m frequencies, (m, d) float64, that cannot be written to."""
        m, d, source = positive_integer("m", m), positive_integer("d", d), generator(rng)
        directions = self.directions(m, d, source)
        omega = NORM_LAWS[self.norms].sample(m, d, source)[:, None] * directions
        omega.setflags(write=False)
        return omega

    @abstractmethod
    def directions(self, m: int, d: int, generator: np.random.Generator) -> Host:
        """Return m unit rows, (m, d), each uniform on the sphere."""

    @abstractmethod
    def blocks(self, m: int, d: int) -> tuple[int, ...]:
        """Return the sizes of the sets of rows that are orthogonal to each other; the sets are independent."""
