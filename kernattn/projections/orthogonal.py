"""Orthogonal frequencies: Haar-distributed directions in blocks of d."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._array import Host
from kernattn._random import RNG
from kernattn.errors import ParameterError
from kernattn.projections.base import Projection
from kernattn.projections.gram_schmidt import gram_schmidt

__all__ = ["METHODS", "Orthogonal", "orthogonal"]


def _qr(rows: Host) -> Host:
    """Orthonormalise the rows of every block, (b, k, d) with k <= d, by Householder QR with a positive diagonal of R."""
    q, r = np.linalg.qr(np.swapaxes(rows, -1, -2))
    signs = np.where(np.diagonal(r, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
    return np.swapaxes(q * signs[:, None, :], -1, -2)


METHODS: dict[str, Callable[[Host], Host]] = {"gram_schmidt": gram_schmidt, "qr": _qr}


@final
@dataclass(frozen=True)
class Orthogonal(Projection):
    """Blocks of d mutually orthogonal rows, the blocks independent, the last one cut to what is left."""

    method: str = "qr"

    def __post_init__(self) -> None:
        """Check the names."""
        super().__post_init__()
        if self.method not in METHODS:
            raise ParameterError(f"method must be one of {', '.join(METHODS)}; got {self.method!r}")

    def directions(self, m: int, d: int, generator: np.random.Generator) -> Host:
        """Return m unit rows, (m, d), each uniform on the sphere."""
        blocks = generator.standard_normal((-(-m // d), d, d))[:, : min(m, d)]
        return METHODS[self.method](blocks).reshape(-1, d)[:m]

    def blocks(self, m: int, d: int) -> tuple[int, ...]:
        """Return the sizes of the sets of rows that are orthogonal to each other."""
        full, rest = divmod(m, d)
        return (d,) * full + (rest,) * (rest > 0)


def orthogonal(m: int, d: int, rng: RNG = None, method: str = "qr", norms: str = "chi") -> Host:
    r"""Draw frequencies whose directions are orthogonal in blocks of d, and whose norms are drawn on their own.

    Yu et al. (2016). Each row is still :math:`N(0, I_d)` under norms "chi", so estimates stay unbiased, while the rows
    of one block no longer repeat each other. The directions of a block are Haar-distributed: Gram-Schmidt of a
    Gaussian block, or its QR decomposition with the diagonal of R made positive. (Without that sign LAPACK's QR is not
    Haar, and positive features are biased whatever their number.)

    Parameters
    ----------
    m : int
        Number of frequencies; above d, independent blocks follow each other.
    d : int
        Dimension.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the draw.
    method : {"qr", "gram_schmidt"}
        How a block is made orthonormal; both give the same rows up to rounding.
    norms : {"chi", "sqrt_d"}
        Law of the rows' norms: "chi" is that of standard normal rows.

    Returns
    -------
    (m, d) array of float64
        The frequencies; the array cannot be written to.

    Raises
    ------
    ParameterError
        If m or d is no positive integer, or method or norms is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> omega = ka.projections.orthogonal(4, 4, rng=0, norms="sqrt_d")
    >>> np.allclose(omega @ omega.T, 4 * np.eye(4))
    True
    """
    return Orthogonal(norms, method).draw(m, d, rng)
