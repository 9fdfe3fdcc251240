"""Orthogonal frequencies, Haar distributed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import one_of
from kernattn.ops.orthogonalize import OP
from kernattn.projections._base import DirectionalProjection
from kernattn.projections._coupling import COUPLED_NORMS
from kernattn.projections._orthogonalize import METHODS
from kernattn.projections._pairs import Pair, count_pairs


def draw_frames(generator: np.random.Generator, count: int, d: int) -> Float64:
    """Return frames of d orthonormal rows, independent and uniform, (count, d, d)."""
    return _orthonormal(generator.standard_normal((count, d, d)), "qr")


def _orthonormal(blocks: Float64, method: str) -> Float64:
    """Return orthonormal rows of blocks, which may be empty: libraries take room for one block then."""
    return np.asarray(OP.implementation(blocks)(blocks, method)) if blocks.size else blocks


@final
@dataclass(frozen=True)
class Orthogonal(DirectionalProjection):
    r"""Frequencies in blocks of d orthogonal rows; with norms "chi" each row alone is :math:`\omega_i \sim N(0, I_d)`.

    Yu et al. (2016). The directions of a block are Haar distributed: the Gram-Schmidt frame of a Gaussian block, or
    its QR factor with the signs of R's diagonal. Blocks are independent, the last one is cut to what is left of m,
    and the norms are drawn apart from the directions. Coupled norms lower the variance further, of trigonometric
    features of near rows far more than of positive ones (the example).

    Parameters
    ----------
    method : str
        "qr" (LAPACK) or "gram_schmidt"; from one seed they give the same rows up to rounding.
    norms : str
        Law of the norms: "chi", "sqrt_d" for the constant :math:`\sqrt{d}`, or "coupled" for chi norms in pairs
        :math:`r' = F^{-1}(1 - F(r))` inside each block (Reid et al. 2025).

    Raises
    ------
    ParameterError
        If method or norms is no such name.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> spec = ka.projections.Orthogonal(norms="sqrt_d")
    >>> omega = spec.draw(10, 4, rng=0)
    >>> spec.blocks(10, 4)
    (4, 4, 2)
    >>> (omega[:4] @ omega[:4].T).round(6) + 0.0
    array([[4., 0., 0., 0.],
           [0., 4., 0., 0.],
           [0., 0., 4., 0.],
           [0., 0., 0., 4.]])

    What coupled norms leave of the variance, of cosines at :math:`|x - y|` = 0.5 and 1, of positive features at
    :math:`|x + y|` = 0.5 and 1:

    >>> x, coupled = np.outer([0.25, 0.5], np.eye(16)[0]), ka.projections.Orthogonal(norms="coupled")
    >>> for estimator, m, y in (("trigonometric", 32, -x), ("positive", 16, x)):
    ...     design = ka.kernels.Gaussian(), 16, m, estimator
    ...     ours, usual = (ka.random_features(*design, p, rng=0).variance(x, y) for p in (coupled, "orthogonal"))
    ...     print((ours / usual).round(3))
    [0.638 0.646]
    [0.994 0.984]
    """

    method: str = "qr"
    norms: str = "chi"
    _norm_names = COUPLED_NORMS

    def __post_init__(self) -> None:
        one_of("method", self.method, METHODS)
        super().__post_init__()

    def pairs(self, m: int, d: int, /) -> dict[Pair, int]:
        """Return the numbers of ordered pairs of orthogonal rows, with independent and with coupled norms."""
        return count_pairs(self.blocks(m, d), 0.0, self.norms)

    def _directions(self, m: int, d: int, generator: np.random.Generator) -> Float64:
        rows = generator.standard_normal((m, d))
        whole = m - m % d
        full = _orthonormal(rows[:whole].reshape(-1, d, d), self.method).reshape(whole, d)
        return np.concatenate([full, _orthonormal(rows[whole:], self.method)])
