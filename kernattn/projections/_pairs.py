r"""Two frequencies that depend on each other, and what the one radial law says of them.

With norms r, r' and a fixed cosine c of the angle between uniform directions, :math:`\omega + \omega'` is isotropic of
norm :math:`\rho`, :math:`\rho^2 = r^2 + r'^2 + 2 c r r'`. For every vector s, :math:`E\,e^{(\omega + \omega')^T s}` and
:math:`E \cos (\omega + \omega')^T s` are therefore :math:`E\,{}_0F_1(; d/2; \pm |s|^2 \rho^2 / 4)`, and what is left is
to average over the norms.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import finite_number, one_of
from kernattn._runtime.lazy_scipy import special
from kernattn.errors import ParameterError
from kernattn.projections._coupling import coupled_nodes
from kernattn.projections._norm_law import NormLaw
from kernattn.projections._norms import NORM_LAWS

CHUNK = 2**17  # nodes at a time


class _Mixture(NamedTuple):
    """A moment at t2 as a sum of moments of another law at factors * t2."""

    law: NormLaw
    rows: int
    tilt: float
    factors: Float64
    log_weights: Float64


@final
@dataclass(frozen=True)
class Pair:
    """How two frequencies lie: the cosine of their angle, and norms "independent", "coupled" or "equal".

    Parameters
    ----------
    cosine : float
        The cosine: 0 for orthogonal rows, -1 for opposite ones.
    norms : str
        How the norms depend on each other.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.projections.Orthogonal().pairs(6, 4)
    {Pair(cosine=0.0, norms='independent'): 14}
    """

    cosine: float
    norms: str = "independent"

    def __post_init__(self) -> None:
        if not abs(finite_number("cosine", self.cosine)) <= 1 + 1e-12:
            raise ParameterError(f"cosine must lie in [-1, 1]; got {self.cosine!r}")
        one_of("norms", self.norms, ("independent", "coupled", "equal"))

    @property
    def opposite(self) -> Pair:
        """The pair of which one is turned around."""
        return Pair(-self.cosine, self.norms)

    def moment(self, law: NormLaw, d: int, t2: ArrayLike) -> Float64:
        r"""Return :math:`E\,{}_0F_1(; d/2; t^2 \rho^2 / 4)` for frequencies in d dimensions, of norms of that law.

        Values of :math:`t^2 \le 0` may have any shape. Raise NoClosedForm where the law says nothing of norms at that
        angle.
        """
        mix = self._mixture(law, d, 0.0)

        def average(t2: Float64) -> Float64:
            return np.asarray(mix.law.moment(d, t2 * mix.factors, rows=mix.rows) @ np.exp(mix.log_weights))

        return _by_chunks(average, t2, len(mix.factors))

    def log_moment(self, law: NormLaw, d: int, t2: ArrayLike, tilt: float = 0.0) -> Float64:
        r"""Return :math:`\log E[e^{a(r^2 + r'^2)}\, {}_0F_1(; d/2; t^2 \rho^2 / 4)]`, a the tilt, as `moment`.

        Values of :math:`t^2 \ge 0` may have any shape. Raise ParameterError for a negative one, or where the tilt makes
        the expectation infinite.
        """
        mix = self._mixture(law, d, tilt)

        def average(t2: Float64) -> Float64:
            logs = mix.law.log_moment(d, t2 * mix.factors, tilt=mix.tilt, rows=mix.rows)
            return np.asarray(special.logsumexp(logs + mix.log_weights, axis=-1))

        return _by_chunks(average, t2, len(mix.factors))

    def _mixture(self, law: NormLaw, d: int, tilt: float) -> _Mixture:
        one, zero = np.ones(1), np.zeros(1)
        if self.norms == "equal":
            return _Mixture(law, 1, 2 * tilt, 2 * (1 + self.cosine) * one, zero)
        if self.norms == "coupled":
            r, other, log_weights = coupled_nodes(d)
            rho2 = r**2 + other**2 + 2 * self.cosine * r * other
            return _Mixture(NORM_LAWS["sqrt_d"], 1, 0.0, rho2 / d, log_weights + tilt * (r**2 + other**2))
        if self.cosine == 0:
            return _Mixture(law, 2, tilt, one, zero)
        sines, log_weights = law.sines(d)
        return _Mixture(law, 2, tilt, 1 + self.cosine * sines, log_weights)


def count_pairs(blocks: tuple[int, ...], cosine: float, norms: str) -> dict[Pair, int]:
    """Return the number of ordered pairs of rows of one block, whose rows are all at one angle."""
    together = sum(b // 2 * 2 for b in blocks) if norms == "coupled" else 0
    counts = Counter({Pair(cosine): sum(b * (b - 1) for b in blocks) - together, Pair(cosine, "coupled"): together})
    return {pair: count for pair, count in counts.items() if count}


def _by_chunks(average: Callable[[Float64], Float64], t2: ArrayLike, nodes: int) -> Float64:
    values = np.asarray(t2, dtype=np.float64)
    flat, size = values.reshape(-1, 1), max(1, CHUNK // nodes)
    parts = [average(flat[i : i + size]) for i in range(0, max(1, len(flat)), size)]
    return np.concatenate(parts).reshape(values.shape)
