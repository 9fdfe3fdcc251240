"""Frequencies in the directions of the corners of regular simplices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import positive_integer
from kernattn.errors import ParameterError
from kernattn.projections._base import DirectionalProjection
from kernattn.projections._coupling import COUPLED_NORMS
from kernattn.projections._orthogonal import draw_frames
from kernattn.projections._pairs import Pair, count_pairs


@final
@dataclass(frozen=True)
class Simplex(DirectionalProjection):
    r"""Frequencies in blocks of d rows at cosines :math:`-1/(d - 1)`; with norms "chi" each row is :math:`N(0, I_d)`.

    Reid et al. (2023): directions point to the corners of a regular simplex of d corners, turned by a Haar rotation.
    They are the rows of a Haar frame less their mean, stretched back to norm 1. Blocks are independent, and the last is
    cut to what is left of m. It serves positive features. Cosines do not tell a direction from its opposite: theirs
    have a larger variance than by orthogonal rows (the example).

    Parameters
    ----------
    norms : str
        Law of the norms: "chi", "sqrt_d" for the constant :math:`\sqrt{d}`, or "coupled" for chi norms in pairs
        :math:`r' = F^{-1}(1 - F(r))` (Reid et al. 2025).

    Raises
    ------
    ParameterError
        If norms is no such name.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> omega = ka.projections.Simplex(norms="sqrt_d").draw(3, 3, rng=0)
    >>> (omega @ omega.T).round(6)
    array([[ 3. , -1.5, -1.5],
           [-1.5,  3. , -1.5],
           [-1.5, -1.5,  3. ]])

    Variances over those of orthogonal rows, of positive features at :math:`|x + y|` = 0.5, 1 and 2, of cosines at
    :math:`|x - y|` = 0.5, 1 and 2:

    >>> x, kernel = np.outer([0.25, 0.5, 1.0], np.eye(16)[0]), ka.kernels.Gaussian()
    >>> for estimator, m, y in (("positive", 16, x), ("trigonometric", 32, -x)):
    ...     simplex, orthogonal = (
    ...         ka.random_features(kernel, 16, m, estimator, p, rng=0).variance(x, y) for p in ("simplex", "orthogonal")
    ...     )
    ...     print((simplex / orthogonal).round(3))
    [0.084 0.35  0.956]
    [1.402 1.376 1.027]
    """

    norms: str = "chi"
    _norm_names = COUPLED_NORMS

    def blocks(self, m: int, d: int, /) -> tuple[int, ...]:
        """Return d, d, ... and what is left of m: how many corners of each simplex are taken."""
        if positive_integer("d", d) == 1:
            raise ParameterError("d must be at least 2 for a simplex: in one dimension it has a single corner; got 1")
        return super().blocks(m, d)

    def pairs(self, m: int, d: int, /) -> dict[Pair, int]:
        """Return the numbers of ordered pairs of corners of one simplex, with independent and with coupled norms."""
        return count_pairs(self.blocks(m, d), -1 / (d - 1), self.norms)

    def _directions(self, m: int, d: int, generator: np.random.Generator) -> Float64:
        frames = draw_frames(generator, -(-m // d), d)
        corners = (frames - np.mean(frames, axis=1, keepdims=True)) * np.sqrt(d / (d - 1))
        return np.asarray(corners.reshape(-1, d)[:m])
