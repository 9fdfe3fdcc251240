"""Independent frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._array import Host
from kernattn._random import RNG
from kernattn.projections.base import Projection

__all__ = ["Iid", "iid"]


@final
@dataclass(frozen=True)
class Iid(Projection):
    """Independent rows; with norms "chi" each is standard normal."""

    def directions(self, m: int, d: int, generator: np.random.Generator) -> Host:
        """Return m unit rows, (m, d), each uniform on the sphere."""
        rows = generator.standard_normal((m, d))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    def blocks(self, m: int, d: int) -> tuple[int, ...]:
        """Return m ones: no two rows are orthogonal."""
        return (1,) * m


def iid(m: int, d: int, rng: RNG = None, norms: str = "chi") -> Host:
    r"""Draw :math:`\omega_i \sim N(0, I_d)` independently, or uniform on the sphere of radius :math:`\sqrt d`.

    Rahimi and Recht (2007).

    Parameters
    ----------
    m : int
        Number of frequencies.
    d : int
        Dimension.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the draw.
    norms : {"chi", "sqrt_d"}
        Law of the rows' norms: "chi" is that of standard normal rows.

    Returns
    -------
    (m, d) array of float64
        The frequencies; the array cannot be written to.

    Raises
    ------
    ParameterError
        If m or d is no positive integer, or norms is no known law.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.projections.iid(3, 2, rng=0).shape
    (3, 2)
    """
    return Iid(norms).draw(m, d, rng)
