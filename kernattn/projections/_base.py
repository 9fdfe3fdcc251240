"""What every projection has in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, final

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._maps.chains import Chains
from kernattn._runtime.checks import check_room, one_of, positive_integer
from kernattn._runtime.random import RNG, generator
from kernattn.errors import NoClosedForm
from kernattn.projections._coupling import couple_norms, law_named
from kernattn.projections._norm_law import NormLaw
from kernattn.projections._norms import NORM_LAWS
from kernattn.projections._pairs import Pair


class Projection(ABC):
    r"""A law of frequencies :math:`\omega_i = r_i u_i`: how directions u and norms r are drawn.

    A projection is a frozen value that says how to draw; it holds no draw. What it says of one row (`law`, `sphere`)
    and of two (`pairs`) is all that means and variances need.
    """

    @abstractmethod
    def blocks(self, m: int, d: int, /) -> tuple[int, ...]:
        """Return the sizes of the sets of rows that depend on each other, in order; they add up to m.

        Rows of different blocks are independent. Raise ParameterError if (m, d) is no shape that the projection has.
        """

    @abstractmethod
    def pairs(self, m: int, d: int, /) -> dict[Pair, int]:
        """Return the number of ordered pairs of each kind among m rows; pairs of a kind left out are independent.

        Raise NoClosedForm if rows depend on each other in a way that no closed form is known for.
        """

    @abstractmethod
    def law(self, own: NormLaw = NORM_LAWS["chi"]) -> NormLaw:
        """Return the law of one row's norm; "chi" stands for a kernel's `own` law, which is chi for the Gaussian."""

    @abstractmethod
    def _draw(self, m: int, d: int, law: NormLaw, generator: np.random.Generator) -> Float64:
        """Return m rows, (m, d)."""

    def sphere(self, m: int, d: int, /) -> int:
        """Return p, where each row is the first d entries of a uniform direction in p dimensions times a norm of `law`.

        It is d where nothing is padded. Raise NoClosedForm if the directions are uniform only nearly.
        """
        return positive_integer("d", d)

    @final
    def draw(self, m: int, d: int, /, rng: RNG = None, own: NormLaw = NORM_LAWS["chi"]) -> Float64:
        """Draw the frequencies omega.

        Parameters
        ----------
        m : int
            Number of rows.
        d : int
            Dimension.
        rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
            Source of randomness (SPEC 7); equal seeds give equal frequencies.
        own : NormLaw
            The law that norms "chi" stand for.

        Returns
        -------
        (m, d) numpy.ndarray
            The frequencies, float64; the array cannot be written to.

        Raises
        ------
        ParameterError
            If m or d is not a positive integer or no size that the projection has, or rng is none of the above.
        """
        m, d, source = positive_integer("m", m), positive_integer("d", d), generator(rng)
        check_room("omega", (m, d))
        self.blocks(m, d)
        omega = np.ascontiguousarray(self._draw(m, d, self.law(own), source))
        omega.setflags(write=False)
        return omega

    def factors(self, m: int, d: int, /, rng: RNG = None, own: NormLaw = NORM_LAWS["chi"]) -> Float64 | Chains:
        """Draw the frequencies of `draw`, as Chains where the projection has factors that are faster to apply."""
        return self.draw(m, d, rng, own)


class DirectionalProjection(Projection):
    """A projection that draws directions first and norms, of the law named `norms`, apart from them."""

    norms: str
    _norm_names: ClassVar[tuple[str, ...]] = tuple(NORM_LAWS)

    def __post_init__(self) -> None:
        one_of("norms", self.norms, self._norm_names)

    @abstractmethod
    def _directions(self, m: int, d: int, generator: np.random.Generator) -> Float64:
        """Return m rows of norm 1 in the dimension of `_padded_size`, cut to their first d entries, (m, d)."""

    def _padded_size(self, d: int) -> int:
        return d

    def blocks(self, m: int, d: int, /) -> tuple[int, ...]:
        """Return p, p, ... and what is left of m, p the dimension of `_padded_size`."""
        full, rest = divmod(positive_integer("m", m), p := self._padded_size(positive_integer("d", d)))
        return (p,) * full + (rest,) * (rest > 0)

    @final
    def law(self, own: NormLaw = NORM_LAWS["chi"]) -> NormLaw:
        """Return the law of one row's norm; norms "coupled" cannot couple those of a kernel's own law."""
        return law_named(self.norms, own)

    @final
    def _draw(self, m: int, d: int, law: NormLaw, generator: np.random.Generator) -> Float64:
        directions = self._directions(m, d, generator)
        return np.asarray(self._lengths(m, d, law, generator)[:, None] * directions)

    @final
    def _lengths(self, m: int, d: int, law: NormLaw, generator: np.random.Generator) -> Float64:
        """Return the norms of m rows, (m,)."""
        norms = law.sample(m, self._padded_size(d), generator)
        return couple_norms(norms, self.blocks(m, d), d) if self.norms == "coupled" else norms


class Structured(DirectionalProjection):
    """A projection of which rows of a block depend on each other as no closed form says."""

    _why: ClassVar[str]  # the rows, and why nothing is known of two of them: the end of a sentence

    @final
    def pairs(self, m: int, d: int, /) -> dict[Pair, int]:
        raise NoClosedForm(f"no closed form is known for the variance with {self._why}")
