"""Independent frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import positive_integer
from kernattn.projections._base import DirectionalProjection
from kernattn.projections._pairs import Pair


@final
@dataclass(frozen=True)
class Iid(DirectionalProjection):
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

    def blocks(self, m: int, d: int, /) -> tuple[int, ...]:
        """Return m ones: no row depends on another."""
        positive_integer("d", d)
        return (1,) * positive_integer("m", m)

    def pairs(self, m: int, d: int, /) -> dict[Pair, int]:
        """Return nothing: no row depends on another."""
        return {}

    def _directions(self, m: int, d: int, generator: np.random.Generator) -> Float64:
        rows = generator.standard_normal((m, d))
        return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))
