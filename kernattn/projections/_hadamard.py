"""Chains of Hadamard transforms and random signs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Float64, frozen
from kernattn._maps.chains import Chains
from kernattn._maps.walsh import next_power_of_two
from kernattn._runtime.checks import check_room, positive_integer
from kernattn._runtime.random import RNG, generator
from kernattn.errors import NoClosedForm
from kernattn.projections._base import Structured
from kernattn.projections._norm_law import NormLaw
from kernattn.projections._norms import NORM_LAWS


@final
@dataclass(frozen=True)
class Hadamard(Structured):
    r"""Frequencies :math:`\Omega = R\, H D_k \cdots H D_1`, H the Walsh-Hadamard matrix over :math:`\sqrt p`.

    Structured orthogonal random features, Yu et al. (2016): the D are diagonals of independent random signs, R is the
    diagonal of the norms. A dimension d is padded to the next power of two p, whose last p - d columns are then
    dropped; blocks of p rows are independent. With norms "sqrt_d" (:math:`R = \sqrt p\, I`) this is SORF; norms "chi"
    are redrawn for every row, and bring a row nearer to :math:`N(0, I_d)`.

    Exact for every chain: rows of a block are orthogonal before columns are dropped, and
    :math:`E\,\omega\omega^T = I`, so linear kernels are unbiased. Only asymptotic in d: the uniform direction of a row,
    whose entries are a signed transform of signs. What it estimates is therefore off its kernel, and no closed form is
    known for `mean` and `variance`. An axis is worst (the example). Of one chain with constant norms the rows are fair
    signs, and :math:`E \cos \omega^T s = \prod_i \cos s_i`.

    Parameters
    ----------
    chains : int
        The number k of transforms. One gives rows of independent signs: far from uniform directions.
    norms : str
        Law of the norms in p dimensions, a name in `kernattn.projections.NORM_LAWS`: "chi", or "sqrt_d" for the
        constant :math:`\sqrt p`.

    Raises
    ------
    ParameterError
        If chains is no positive integer, or norms no such name.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> spec = ka.projections.Hadamard(norms="sqrt_d")
    >>> omega = spec.draw(6, 4, rng=0)
    >>> spec.blocks(6, 4), spec.blocks(6, 3), spec.blocks(6, 5)
    ((4, 2), (4, 2), (6,))
    >>> (omega[:4] @ omega[:4].T).round(6) + 0.0
    array([[4., 0., 0., 0.],
           [0., 4., 0., 0.],
           [0., 0., 4., 0.],
           [0., 0., 0., 4.]])

    The mean of cosines over the Gaussian kernel, along an axis, for 1, 2 and 3 chains in 4 and in 16 dimensions:

    >>> for d in (4, 16):
    ...     omega = [ka.projections.Hadamard(chains=chains).draw(2**16, d, rng=0) for chains in (1, 2, 3)]
    ...     print(np.mean(np.cos(omega)[:, :, 0] / np.exp(-0.5), axis=1).round(2))
    [0.92 1.03 0.98]
    [0.9  1.01 1.  ]
    """

    chains: int = 3
    norms: str = "chi"

    def __post_init__(self) -> None:
        positive_integer("chains", self.chains)
        super().__post_init__()

    _why = (
        "Hadamard chains: rows of a block depend on each other "
        "through their signs, and are orthogonal only before padding is dropped"
    )

    def sphere(self, m: int, d: int, /) -> int:
        """Raise NoClosedForm: directions are uniform only as d grows."""
        raise NoClosedForm(
            "no closed form is known for means with Hadamard chains: their directions are uniform only as d grows"
        )

    def _padded_size(self, d: int) -> int:
        return next_power_of_two(d)

    def factors(self, m: int, d: int, /, rng: RNG = None, own: NormLaw = NORM_LAWS["chi"]) -> Chains:
        """Draw the same frequencies as `draw`, as the diagonals and norms that they are made of."""
        m, d, source = positive_integer("m", m), positive_integer("d", d), generator(rng)
        signs = self._signs(m, d, source)
        return Chains(frozen(signs), frozen(self._lengths(m, d, self.law(own), source)), d)

    def _signs(self, m: int, d: int, generator: np.random.Generator) -> Float64:
        """Return the diagonals, (blocks, k, p)."""
        shape = (self.chains, -(-m // next_power_of_two(d)), next_power_of_two(d))
        check_room("the diagonals", shape)
        return np.ascontiguousarray((1.0 - 2.0 * generator.integers(0, 2, shape)).swapaxes(0, 1))

    def _directions(self, m: int, d: int, generator: np.random.Generator) -> Float64:
        return Chains(self._signs(m, d, generator), np.ones(m), d).dense
