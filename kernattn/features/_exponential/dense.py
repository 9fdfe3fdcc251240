"""Positive random features shaped by the data: exponentials of quadratic forms in the frequencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._maps.spec import MapSpec
from kernattn._runtime.checks import host_array, shown
from kernattn._runtime.lazy import lazy
from kernattn.errors import NoClosedForm, ParameterError
from kernattn.features._moments.moments import Moments, exponential_products
from kernattn.features._moments.tails import squared_skewness_of_logs
from kernattn.features._spectral.map import RandomFeatureMap, check_exponential
from kernattn.features._spectral.spectra import check_normal
from kernattn.projections import Pair

ALIKE = 1e-12  # of tilts: as far apart as rounding leaves those of one number


@final
@dataclass(frozen=True, eq=False, repr=False)
class DenseExponential(RandomFeatureMap):
    r"""FAVOR#: :math:`\phi(x) = m^{-1/2} D \exp(\omega^T A \omega + \omega^T B x - (1 - c)|x|^2)`.

    Likhosherstov et al. (2023), dense-exponential features with symmetric parameters; c is 1/2 for softmax and 0 for
    the Gaussian kernel. For :math:`\omega \sim N(0, I)` and s = x + y,

    .. math:: E\,e^{2 \omega^T A \omega + \omega^T B s} = \det(I - 4A)^{-1/2} e^{s^T B^T (I - 4A)^{-1} B s / 2},

    so the estimate is unbiased if and only if :math:`B^T (I - 4A)^{-1} B = I` and :math:`D = \det(I - 4A)^{1/4}`. Here
    A is diagonal, its entries the `tilt`, and :math:`B = (I - 4A)^{1/2} Q^T`. The second moment of one term,

    .. math:: \prod_i \frac{1 - 4A_i}{\sqrt{1 - 8A_i}} \exp\left(\frac{2 (1 - 4A_i)}{1 - 8A_i} (Q^T s)_i^2\right)

    times the row factors, is a product of those of :class:`OptimalPositive` in one dimension, and so is its optimum:
    `kernattn.random_features` takes the one for the data, along the axes of :math:`E (x + y)(x + y)^T`.

    `variance` is closed where terms are independent, and where rows come in opposite pairs. Of rows that depend on each
    other otherwise, as orthogonal ones, it is closed where all tilts are one number a: :math:`\omega^T A \omega` is
    :math:`a |\omega|^2` then, and the map is :class:`OptimalPositive` in other axes, whose laws depend on norms alone.
    Where tilts differ, :math:`E\,t t'` depends on how both rows lie to the axes of A, and no closed form is known.
    """

    tilt: Float64  # (d,) diagonal of A
    basis: Float64  # (d, d) Q, orthonormal columns

    def __post_init__(self) -> None:
        """Check the parameters: from a tilt of 1/8 on, the variance is infinite; other norms would be biased."""
        super().__post_init__()
        check_exponential(self.kernel)
        check_normal(self.projection)
        d = self.omega.shape[1]
        host_array("tilt", self.tilt, (d,))
        host_array("basis", self.basis, (d, d))
        if not np.allclose(self.basis.T @ self.basis, np.eye(d), atol=1e-6):
            raise ParameterError("basis must have orthonormal columns")
        if not (self.tilt < 1 / 8).all():
            raise ParameterError(f"every tilt must be below 1/8; got {shown(self.tilt)}")

    @lazy
    def spec(self) -> MapSpec:
        """The map as plain numbers."""
        scale = self._input_scale
        return MapSpec(
            "exp",
            omega=(self.omega * np.sqrt(1 - 4 * self.tilt)) @ self.basis.T * scale,
            **self._row_logs(),
            offset=self.omega**2 @ self.tilt + np.sum(np.log1p(-4 * self.tilt)) / 4,
            amplitude=len(self.omega) ** -0.5,
        )

    def _moments(self, x: Float64, y: Float64) -> Moments:
        return self._moments_times(x, y, np.zeros(()))

    def _moments_times(self, x: Float64, y: Float64, log: Float64) -> Moments:
        """Return the moments of one frequency's term times e^log."""
        self.projection.sphere(*self.omega.shape)  # raises where directions are uniform only nearly
        s2, a = ((x + y) @ self.basis) ** 2, self.tilt
        row = 2 * ((self.kernel.row_exponent - 1) * np.sum(x**2 + y**2, axis=-1) + log)
        constant = np.sum(np.log1p(-4 * a) - np.log1p(-8 * a) / 2)

        def cross(pair: Pair) -> Float64:
            if pair == Pair(-1.0, "equal"):
                return np.asarray(np.exp(constant + row))
            if np.ptp(a) > ALIKE * (1 + np.max(np.abs(a))):
                raise NoClosedForm(
                    "no closed form is known for the variance of 'favor_sharp' or 'favor_sharp_asymmetric' with "
                    "frequencies that depend on each other; with projection 'iid' there is one, and 'optimal_positive' "
                    "has one with every projection that does"
                )
            d, one = len(a), float(np.mean(a))
            moment = pair.log_moment(self.projection.law(), d, s2 @ (1 - 4 * a), tilt=2 * one)
            return np.asarray(np.exp(moment + d * np.log1p(-4 * one) + row))

        return Moments(
            np.exp(np.sum(s2, axis=-1) / 2 + row / 2),
            np.exp(s2 @ (2 * (1 - 4 * a) / (1 - 8 * a)) + constant + row),
            cross,
        )

    def _products(self, q: Float64, k: Float64) -> tuple[Float64, Float64]:
        row = (self.kernel.row_exponent - 1) * np.sum(q**2 + k**2, axis=-1)
        return exponential_products((q + k) @ self.basis, row, self.tilt)

    def _squared_skewness(self, x: Float64, y: Float64) -> Float64:
        r"""Return the squared skewness of one frequency's term for scaled rows x, y (..., d).

        Up to the row factors, :math:`E\,t^k` is the product over the axes of
        :math:`(1 - 4A_i)^{k/2} (1 - 4kA_i)^{-1/2} \exp(k^2 (1 - 4A_i) s_i^2 / (2 (1 - 4kA_i)))`.
        """
        s2, a = ((x + y) @ self.basis) ** 2, self.tilt

        def log_power(k: int) -> Float64:
            if not (4 * k * a < 1).all():
                return np.full(s2.shape[:-1], np.inf)
            constant = np.sum(k * np.log1p(-4 * a) - np.log1p(-4 * k * a)) / 2
            return np.asarray(s2 @ (k**2 * (1 - 4 * a) / (1 - 4 * k * a)) / 2 + constant)

        return squared_skewness_of_logs(log_power)
