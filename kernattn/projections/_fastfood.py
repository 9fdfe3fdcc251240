"""Fastfood: a Gaussian diagonal between two Hadamard transforms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._maps.walsh import next_power_of_two, walsh_hadamard
from kernattn._runtime.checks import positive_integer
from kernattn.projections._base import Structured


@final
@dataclass(frozen=True)
class Fastfood(Structured):
    r"""Frequencies :math:`\Omega = S H G \Pi H B`; with norms "chi" each row alone is :math:`\omega_i \sim N(0, I_d)`.

    Le, Sarlos and Smola (2013): B a diagonal of random signs, :math:`\Pi` a random permutation, G a diagonal of
    standard normal numbers, H the Walsh-Hadamard matrix, S the diagonal that gives the rows their norms. A dimension d
    is padded to the next power of two p, whose last p - d columns are then dropped; blocks of p rows are independent.

    Exact: a row of :math:`H G \Pi H B` is the vector of G's numbers turned by an orthogonal matrix, so its direction is
    uniform in p dimensions, and `mean` has a closed form for every isotropic kernel. Rows of a block share G, are not
    orthogonal, and no closed form is known for `variance`: expect more than that of iid rows.

    Parameters
    ----------
    norms : str
        Law of the norms in p dimensions, a name in `kernattn.projections.NORM_LAWS`: "chi", or "sqrt_d" for the
        constant :math:`\sqrt p`.

    Raises
    ------
    ParameterError
        If norms is no such name.

    Examples
    --------
    >>> import kernattn as ka
    >>> spec = ka.projections.Fastfood()
    >>> spec.draw(6, 3, rng=0).shape, spec.blocks(6, 3)
    ((6, 3), (4, 2))
    """

    norms: str = "chi"

    _why = (
        "Fastfood: rows of a block share the numbers of G, and what "
        "two of them have in common depends on the permutation"
    )

    def sphere(self, m: int, d: int, /) -> int:
        """Return d with norms "chi", for rows cut to d entries are normal again; else what d is padded to."""
        return d if self.norms == "chi" else next_power_of_two(positive_integer("d", d))

    def _padded_size(self, d: int) -> int:
        return next_power_of_two(d)

    def _directions(self, m: int, d: int, generator: np.random.Generator) -> Float64:
        p = next_power_of_two(d)
        count = -(-m // p)
        signs = 1.0 - 2.0 * generator.integers(0, 2, (count, 1, p))
        transforms = signs * walsh_hadamard(np.eye(p))  # H B, (count, p, p)
        order = generator.permuted(np.broadcast_to(np.arange(p), (count, p)), axis=1)
        gaussian = generator.standard_normal((count, p, 1))
        unit = gaussian / np.linalg.norm(gaussian, axis=1, keepdims=True)
        shuffled = np.take_along_axis(transforms, order[:, :, None], axis=1)[..., :d]
        rows = np.sqrt(p) * walsh_hadamard(unit * shuffled)  # (count, p, d)
        return np.asarray(rows.reshape(-1, d)[:m])
