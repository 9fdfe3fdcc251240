"""Orthogonal frequencies, Haar distributed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import one_of
from kernattn._runtime.random import RNG
from kernattn.ops.orthogonalize import OP
from kernattn.projections._base import Directed
from kernattn.projections._coupling import COUPLED_NORMS
from kernattn.projections._orthogonalize import METHODS
from kernattn.projections._pairs import Pair, within_blocks


def haar(generator: np.random.Generator, count: int, d: int) -> Float64:
    """Return frames of d orthonormal rows, independent and uniform, (count, d, d)."""
    return _orthonormal(generator.standard_normal((count, d, d)), "qr")


def _orthonormal(blocks: Float64, method: str) -> Float64:
    """Return orthonormal rows of blocks, which may be empty."""
    return np.asarray(OP.implementation(blocks)(blocks, method))


@final
@dataclass(frozen=True)
class Orthogonal(Directed):
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
    ...     phi = [ka.random_features(ka.kernels.Gaussian(), 16, m, estimator, p) for p in (coupled, "orthogonal")]
    ...     print((phi[0].variance(x, y) / phi[1].variance(x, y)).round(3))
    [0.638 0.646]
    [0.994 0.984]
    """

    method: str = "qr"
    norms: str = "chi"

    def __post_init__(self) -> None:
        """Check the names."""
        one_of("method", self.method, METHODS)
        one_of("norms", self.norms, COUPLED_NORMS)

    def pairs(self, m: int, d: int) -> dict[Pair, int]:
        """Return the numbers of ordered pairs of orthogonal rows, with independent and with coupled norms."""
        return within_blocks(self.blocks(m, d), 0.0, self.norms)

    def _directions(self, m: int, d: int, generator: np.random.Generator) -> Float64:
        rows = generator.standard_normal((m, d))
        whole = m - m % d
        full = _orthonormal(rows[:whole].reshape(-1, d, d), self.method).reshape(whole, d)
        return np.concatenate([full, _orthonormal(rows[whole:], self.method)])


def orthogonal(m: int, d: int, rng: RNG = None, method: str = "qr", norms: str = "chi") -> Float64:
    r"""Draw frequencies :math:`\omega_i = r_i u_i` with :math:`u_i^T u_j = 0` inside each block of d rows:
    ``Orthogonal(method, norms).draw(m, d, rng)``.

    The parameters are those of :class:`Orthogonal` and of `Projection.draw`.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> omega = ka.projections.orthogonal(3, 3, rng=0)
    >>> gram = omega @ omega.T
    >>> bool(np.allclose(gram, np.diag(np.diag(gram))))
    True
    """
    return Orthogonal(method=method, norms=norms).draw(m, d, rng)
