"""Every frequency with its opposite."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import instance_of, positive_integer, shown
from kernattn.errors import ParameterError
from kernattn.projections._base import Projection
from kernattn.projections._norm_law import NormLaw
from kernattn.projections._norms import NORM_LAWS
from kernattn.projections._orthogonal import Orthogonal
from kernattn.projections._pairs import Pair


@final
@dataclass(frozen=True)
class Antithetic(Projection):
    r"""Frequencies in pairs :math:`\omega, -\omega`, next to each other; half of them are drawn by another projection.

    Hammersley and Morton (1956). Each row keeps its law. Exponential features with these 2D rows are those of
    "hyperbolic" with D rows of the base, in another order, and have its variance: a term is
    :math:`\cosh \omega^T(x + y)`. Cosines do not tell :math:`\omega` from :math:`-\omega`: for "trigonometric" and
    "hyperbolic" features the second row of a pair adds nothing.

    Parameters
    ----------
    base : Projection
        How the first row of every pair is drawn, with its norms.

    Raises
    ------
    ParameterError
        If base is not a projection, or is antithetic itself.

    Examples
    --------
    >>> import kernattn as ka
    >>> spec = ka.projections.Antithetic(ka.projections.Iid())
    >>> omega = spec.draw(6, 3, rng=0)
    >>> spec.blocks(6, 3), bool((omega[1::2] == -omega[::2]).all())
    ((2, 2, 2), True)
    """

    base: Projection = Orthogonal()  # noqa: RUF009

    def __post_init__(self) -> None:
        base: object = self.base
        instance_of("base", base, Projection)
        if isinstance(base, Antithetic):
            raise ParameterError(f"base must be a projection that is not antithetic itself; got {shown(base)}")

    def blocks(self, m: int, d: int, /) -> tuple[int, ...]:
        """Return twice the sizes of the base's blocks."""
        m, d = positive_integer("m", m), positive_integer("d", d)
        if m % 2:
            raise ParameterError(f"m must be even for antithetic pairs; got {m}")
        return tuple(2 * size for size in self.base.blocks(m // 2, d))

    def pairs(self, m: int, d: int, /) -> dict[Pair, int]:
        """Return the number of opposite pairs, and for each pair of the base two like it and two turned around."""
        self.blocks(m, d)
        counts = Counter({Pair(-1.0, "equal"): m})
        for pair, count in self.base.pairs(m // 2, d).items():
            counts[pair] += 2 * count
            counts[pair.opposite] += 2 * count
        return dict(counts)

    def law(self, own: NormLaw = NORM_LAWS["chi"]) -> NormLaw:
        return self.base.law(own)

    def sphere(self, m: int, d: int, /) -> int:
        return self.base.sphere(m // 2, d)

    def _draw(self, m: int, d: int, law: NormLaw, generator: np.random.Generator) -> Float64:
        half = self.base._draw(m // 2, d, law, generator)
        return np.stack([half, -half], axis=1).reshape(m, d)
