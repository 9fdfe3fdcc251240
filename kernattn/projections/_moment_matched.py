"""Frequencies whose sample has the mean and the covariance of their law."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import positive_integer
from kernattn.errors import ParameterError
from kernattn.projections._base import Projection
from kernattn.projections._norm_law import NormLaw
from kernattn.projections._norms import NORM_LAWS
from kernattn.projections._pairs import Pair


@final
@dataclass(frozen=True)
class MomentMatched(Projection):
    r"""Frequencies :math:`\Omega = (W - \bar W)\, S^{-1/2}`: their sample has mean 0 and covariance I, exactly.

    Shen, Yang and Wang (2017): the rows of W are independent and normal, :math:`\bar W` their mean and S their
    covariance over m. What is linear or quadratic in the frequencies is exact in every draw: the Gaussian kernel's
    estimate errs by terms of order :math:`|x - y|^4` alone, and that of positive features by :math:`|x + y|^4`.

    The whole law is known. The columns of :math:`\Omega / \sqrt m` are uniform among orthonormal ones that are
    orthogonal to (1, ..., 1), so the rows are the m corners of a simplex in p = m - 1 dimensions, of norm
    :math:`\sqrt p`, turned at random and cut to their first d entries: any two, before the cut, at the cosine -1 / p.
    Hence `mean` and `variance` are closed, and the estimate is not quite unbiased. A row is normal only as m grows:

    .. math:: E \cos \omega^T s = {}_0F_1(; p/2; -p |s|^2 / 4) = e^{-|s|^2 / 2} (1 - |s|^4 / 4m + O(m^{-2})),

    and :math:`E\,e^{\omega^T s}`, of exponential features, is the same with :math:`-|s|^2` for :math:`|s|^2`.

    There are m > d rows, for fewer have no covariance of full rank; with m = d + 1 they are a simplex. It is for
    kernels whose frequencies are normal: those of others have no covariance, or get another law by this transform.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> omega = ka.projections.MomentMatched().draw(8, 3, rng=0)
    >>> (omega.T @ omega / 8).round(12) + 0.0
    array([[1., 0., 0.],
           [0., 1., 0.],
           [0., 0., 1.]])
    >>> bool(np.abs(omega.mean(axis=0)).max() < 1e-14)
    True

    Mean squared errors over those of independent frequencies, for m = 64 of them and :math:`|x - y|` = 0.25, 0.5, 1
    and 2:

    >>> x, errors = np.outer([0.25, 0.5, 1.0, 2.0], np.eye(16)[0]), {}
    >>> for projection in ("iid", "orthogonal", "moment_matched"):
    ...     phi = ka.random_features(ka.kernels.Gaussian(), 16, 128, "trigonometric", projection, rng=0)
    ...     errors[projection] = phi.variance(x, 0 * x) + phi.bias(x, 0 * x) ** 2
    >>> (errors["moment_matched"] / errors["iid"]).round(4)
    array([3.000e-04, 4.300e-03, 7.110e-02, 7.046e-01])
    >>> (errors["orthogonal"] / errors["iid"]).round(4)
    array([0.1617, 0.1503, 0.1577, 0.6712])
    """

    def blocks(self, m: int, d: int, /) -> tuple[int, ...]:
        """Return m: all rows share the sample's moments."""
        if positive_integer("m", m) <= positive_integer("d", d):
            raise ParameterError(
                f"m must be above d = {d} for moment-matched frequencies, whose sample covariance has full rank; "
                f"got {m} frequencies (a pair of features has one)"
            )
        return (m,)

    def pairs(self, m: int, d: int, /) -> dict[Pair, int]:
        """Return m (m - 1) at the cosine -1 / (m - 1), in the m - 1 dimensions of `sphere`."""
        self.blocks(m, d)
        return {Pair(-1.0 / (m - 1)): m * (m - 1)}

    def law(self, own: NormLaw = NORM_LAWS["chi"]) -> NormLaw:
        """Return the law of constant norms, those in the m - 1 dimensions of `sphere`."""
        if own != NORM_LAWS["chi"]:
            raise ParameterError(
                "projection 'moment_matched' is for normal frequencies, those of Gaussian and softmax kernels: the "
                f"matched moments of this kernel's, of norms {own!r}, would not be those of its law"
            )
        return NORM_LAWS["sqrt_d"]

    def sphere(self, m: int, d: int, /) -> int:
        """Return m - 1, the dimension of the simplex that rows are cut from."""
        self.blocks(m, d)
        return m - 1

    def _draw(self, m: int, d: int, law: NormLaw, generator: np.random.Generator) -> Float64:
        rows = generator.standard_normal((m, d))
        left, _, right = np.linalg.svd(rows - np.mean(rows, axis=0), full_matrices=False)
        omega = np.sqrt(m) * (left @ right)
        return np.asarray(omega - np.mean(omega, axis=0))  # what rounding left where a singular value is small
