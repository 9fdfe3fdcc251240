"""Random features of the arc-cosine kernels: a layer of random neurons."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import log
from typing import Self, final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, accumulation_dtype, namespace
from kernattn._maps.chains import Chains
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._runtime.checks import instance_of, positive_integer
from kernattn._runtime.lazy import lazy
from kernattn._runtime.random import RNG, generator
from kernattn._sums.units import scaled_down
from kernattn.errors import NoClosedForm
from kernattn.features._base.map import FeatureMap
from kernattn.features._moments.bounds import Terms, of_frequencies
from kernattn.features._moments.pairs import bias_of, clean_variance
from kernattn.features._spectral.map import check_frequencies
from kernattn.kernels import ArcCosine
from kernattn.kernels._arccosine import arccosine
from kernattn.kernels._rows import check_rows
from kernattn.ops.features import project, scaled
from kernattn.projections import NORM_LAWS, Pair, Projection


@final
@dataclass(frozen=True, eq=False, repr=False)
class ArcCosineFeatures(FeatureMap):
    r"""Neurons with random weights: :math:`\phi(x) = (2/m)^{1/2}\, \Theta(\Omega x) (\Omega x)^p`.

    Cho and Saul (2009); :math:`\Theta` is 1 above 0 and 0 elsewhere, so the order p = 1 is the rectified linear unit.
    The square of one term is a term of the kernel of order 2p: with iid weights the variance is
    :math:`(2 k_{2p}(x, y) - k_p(x, y)^2) / m`.

    With Hadamard chains no mean is known, and near the coordinate axes it is far off the kernel of order 0: entries of
    the few transforms of an axis are often exactly 0, where no neuron fires. The orders 1
    and 2 are off only where d is very small.
    """

    kernel: ArcCosine
    projection: Projection
    omega: Float64 | Chains  # (m, d)

    def __post_init__(self) -> None:
        instance_of("kernel", self.kernel, ArcCosine)
        check_frequencies(self.projection, self.omega)

    @classmethod
    def _sample(
        cls, kernel: ArcCosine, number: int, dim: int, rng: np.random.Generator, projection: Projection
    ) -> Self:
        """Draw a map of so many neurons."""
        return cls(kernel, projection, projection.factors(number, dim, rng))

    @property
    def dim(self) -> int:
        return int(self.omega.shape[1])

    def num_features_of(self, dim: int) -> int:
        positive_integer("dim", dim)
        return int(self.omega.shape[0])

    @lazy
    def spec(self) -> MapSpec | None:
        """The map as plain numbers for the order 1, else None."""
        amplitude = (2 / len(self.omega)) ** 0.5
        return MapSpec("relu", omega=self.omega, amplitude=amplitude) if self.kernel.order == 1 else None

    def scaled_query(self, x: Array) -> ScaledFeatures:
        if self.spec is not None:
            return scaled(x, self.spec)
        xp, order = namespace(x=x), self.kernel.order
        rows, octaves = scaled_down(xp, xp.astype(x, accumulation_dtype(xp, x), copy=False), tiny=True)
        u = project(rows, self.omega)  # (..., n, m)
        values = xp.where(u > 0, u**order, xp.zeros_like(u)) * (2 / len(self.omega)) ** 0.5
        return ScaledFeatures(values, order * log(2) * octaves)

    def redraw(self, rng: RNG = None) -> Self:
        m, d = self.omega.shape
        return replace(self, omega=self.projection.factors(m, d, generator(rng)))

    def _mean(self, x: Float64, y: Float64) -> Float64:
        return self._term(x, y, self.kernel.order)

    def _bias(self, x: Float64, y: Float64) -> Float64:
        return bias_of(self._mean(x, y), self.kernel.pairs(x, y))

    def _variance(self, x: Float64, y: Float64) -> Float64:
        if self.projection.pairs(*self.omega.shape):
            raise self._no_variance()
        mean, second, _ = self._moments(x, y)
        return clean_variance(second - mean**2, mean) / len(self.omega)

    def _terms(self, x: Float64, y: Float64) -> Terms:
        size = np.full(len(x), 2.0) if self.kernel.order == 0 else None
        return of_frequencies(self.projection, self.omega.shape, 1, self._moments(x, y), self.bias(x, y), size)

    def _moments(self, x: Float64, y: Float64) -> tuple[Float64, Float64, Callable[[Pair], Float64]]:
        def cross(pair: Pair) -> Float64:
            raise self._no_variance()

        return self._mean(x, y), 2 * self._term(x, y, 2 * self.kernel.order), cross

    def _no_variance(self) -> NoClosedForm:
        return NoClosedForm(
            f"no closed form is known for the variance of {type(self).__name__} with weights that depend on each "
            "other; with projection 'iid' there is one"
        )

    def _term(self, x: Float64, y: Float64, order: int) -> Float64:
        """Return the kernel of that order, times E r^(2 order) / E chi^(2 order) over the norms r."""
        p, law = self.projection.sphere(*self.omega.shape), self.projection.law()
        if law not in (NORM_LAWS["chi"], NORM_LAWS["sqrt_d"]):
            raise NoClosedForm(f"no closed form is known for {type(self).__name__} with norms of {law!r}")
        kernel: Float64 = arccosine(check_rows(x, y, cross=False), order)
        # both are homogeneous in the norms, and E chi^(2 order) = p (p + 2) ... (p + 2 order - 2)
        return kernel if law == NORM_LAWS["chi"] else kernel * np.prod(p / (p + 2.0 * np.arange(order)))
