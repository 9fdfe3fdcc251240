"""Independent frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import one_of, positive_integer
from kernattn._runtime.random import RNG
from kernattn.projections._base import Directed
from kernattn.projections._norms import NORM_LAWS
from kernattn.projections._pairs import Pair


@final
@dataclass(frozen=True)
class Iid(Directed):
    r"""Independent frequencies: with norms "chi" the rows are :math:`\omega_i \sim N(0, I_d)`.

    Rahimi and Recht (2007).

    Parameters
    ----------
    norms : str
        Law of the norms, a name in `kernattn.projections.NORM_LAWS`: "chi", or "sqrt_d" for the constant
        :math:`\sqrt{d}`.

    Raises
    ------
    ParameterError
        If norms is no such name.

    Examples
    --------
    >>> import kernattn as ka
    >>> spec = ka.projections.Iid()
    >>> spec.draw(5, 3, rng=0).shape, spec.blocks(5, 3)
    ((5, 3), (1, 1, 1, 1, 1))
    """

    norms: str = "chi"

    def __post_init__(self) -> None:
        """Check the name."""
        one_of("norms", self.norms, NORM_LAWS)

    def blocks(self, m: int, d: int) -> tuple[int, ...]:
        """Return m ones: no row depends on another."""
        positive_integer("d", d)
        return (1,) * positive_integer("m", m)

    def pairs(self, m: int, d: int) -> dict[Pair, int]:
        """Return nothing: no row depends on another."""
        return {}

    def _directions(self, m: int, d: int, generator: np.random.Generator) -> Float64:
        rows = generator.standard_normal((m, d))
        return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


def iid(m: int, d: int, rng: RNG = None, norms: str = "chi") -> Float64:
    r"""Draw m independent frequencies :math:`\omega_i = r_i u_i`: ``Iid(norms).draw(m, d, rng)``.

    The parameters are those of :class:`Iid` and of `Projection.draw`.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.projections.iid(5, 3, rng=0).shape
    (5, 3)
    """
    return Iid(norms=norms).draw(m, d, rng)
