"""What every projection has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import final

import numpy as np

from kernattn._array import Host
from kernattn._check import positive_integer
from kernattn._random import RNG, generator
from kernattn.projections.norms import NORM_LAWS, NormLaw

__all__ = ["Projection"]


class Projection(ABC):
    r"""A law of frequencies :math:`\omega_i = r_i u_i`: directions u uniform on the sphere, and independent norms r.

    A projection is a frozen value that says how to draw, with the name of a law of norms in `norms`; it holds no draw.
    """

    norms: str

    @abstractmethod
    def blocks(self, m: int, d: int) -> tuple[int, ...]:
        """Return the sizes of the sets of mutually orthogonal rows, in order; they add up to m.

        Parameters
        ----------
        m : int
            Number of rows.
        d : int
            Dimension.

        Returns
        -------
        tuple of int
            The sizes.
        """

    @abstractmethod
    def _directions(self, m: int, d: int, generator: np.random.Generator) -> Host:
        """Return m unit rows, (m, d)."""

    @final
    def law(self, own: NormLaw = NORM_LAWS["chi"]) -> NormLaw:
        """Return the law of the norms; the name "chi" stands for a kernel's own law, which is chi for the Gaussian one.

        Parameters
        ----------
        own : NormLaw
            The kernel's own law.

        Returns
        -------
        NormLaw
            The law.
        """
        return own if self.norms == "chi" else NORM_LAWS[self.norms]

    @final
    def draw(self, m: int, d: int, rng: RNG = None, own: NormLaw = NORM_LAWS["chi"]) -> Host:
        """Draw the frequencies omega; directions come from the generator first, norms after them.

        Parameters
        ----------
        m : int
            Number of rows.
        d : int
            Dimension.
        rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
            Source of randomness (SPEC 7); equal seeds give equal frequencies.
        own : NormLaw
            The law that the name "chi" stands for.

        Returns
        -------
        (m, d) numpy.ndarray
            The frequencies, float64; the array cannot be written to.

        Raises
        ------
        ParameterError
            If m or d is not a positive integer, or rng is none of the above.
        """
        m, d, source = positive_integer("m", m), positive_integer("d", d), generator(rng)
        directions = self._directions(m, d, source)
        omega = np.ascontiguousarray(self.law(own).sample(m, d, source)[:, None] * directions)
        omega.setflags(write=False)
        return omega
