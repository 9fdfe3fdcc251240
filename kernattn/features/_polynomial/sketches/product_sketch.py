"""Real product sketches: each feature is a product of p random projections with weights of mean 0 and variance 1."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, Float64, frozen
from kernattn._runtime.checks import host_array, positive_integer
from kernattn.errors import ParameterError
from kernattn.features._polynomial.inputs import PairSums, width
from kernattn.features._polynomial.sketches.base import PolynomialSketch
from kernattn.features._polynomial.sketches.weights import check_signs, multiply_projections, random_signs
from kernattn.kernels import Polynomial
from kernattn.projections import Iid, Orthogonal, Projection


@dataclass(frozen=True, eq=False, repr=False)
class ProductSketch(PolynomialSketch):
    r""":math:`\phi(x)_a = M^{-1/2} \prod_{i=1}^p \omega_{ia}^T \tilde x`."""

    omega: NDArray[Any]  # (p, M, width)

    @final
    @property
    def _width(self) -> int:
        return int(self.omega.shape[2])

    @final
    def num_features_of(self, dim: int) -> int:
        positive_integer("dim", dim)
        return int(self.omega.shape[1])

    @final
    def _product(self, x: Any, backend: str | None) -> Array:
        return multiply_projections(x, self.omega)

    @final
    def _pair_variance(self, pair: PairSums, num_features: int) -> Float64:
        return product_variance(self.kernel.degree, pair.square, *self._factor_moments(pair), num_features, self._block)

    @abstractmethod
    def _factor_moments(self, pair: PairSums) -> tuple[Float64, Float64]:
        """Return E t^2 and E t t' of t = (w.x)(w.y), for two rows w, w' of one block."""


def product_variance(
    degree: int, square: Float64, second: Float64, cross: Float64, num_features: int, block: int
) -> Float64:
    """Return the variance of the mean of products of `degree` independent factors t, from (E t)^2, E t^2 and E t t'.

    Of two features in a block, whose t and t' depend on each other, the products do too; others are independent.
    """
    whole, rest = divmod(num_features, block)
    together = whole * block * (block - 1) + rest * (rest - 1)
    mean = square**degree
    variance: Float64 = (second**degree - mean) / num_features + (cross**degree - mean) * (together / num_features**2)
    return variance


def _check_projection(projection: Projection) -> None:
    if not isinstance(projection, Iid | Orthogonal) or projection.norms not in ("chi", "sqrt_d"):
        raise ParameterError(
            "a Gaussian sketch takes the projections 'iid' and 'orthogonal' with norms 'chi' or 'sqrt_d', "
            f"whose weights have variance 1 and known fourth moments; got {projection!r}"
        )


@final
@dataclass(frozen=True, eq=False, repr=False)
class GaussianSketch(ProductSketch):
    r"""Gaussian sketch: :math:`\omega \sim N(0, I)`, iid or in orthogonal blocks.

    Kar and Karnick (2012); with iid weights the variance is :math:`[(N + 2a)^p - a^p] / M` (Wacker, Kanagawa and
    Filippone 2022), where :math:`a = (\tilde x^T \tilde y)^2` and :math:`N = |\tilde x|^2 |\tilde y|^2`. Each factor
    draws its own blocks of orthogonal weights: two rows of a block have :math:`E\,t t' = d(da - N) / ((d - 1)(d + 2))`
    in place of a. Norms of
    :math:`\sqrt d` keep the mean and multiply :math:`N + 2a` by :math:`d / (d + 2)`.
    """

    projection: Iid | Orthogonal

    def _check_draw(self) -> None:
        """Raise unless the weights are numbers, and the projection one that they have."""
        host_array("omega", self.omega, (self.kernel.degree, "M", "width"))
        _check_projection(self.projection)

    @property
    def _design(self) -> dict[str, Any]:
        return {"projection": self.projection}

    @classmethod
    def _sample(
        cls,
        kernel: Polynomial,
        number: int,
        dim: int,
        rng: np.random.Generator,
        projection: Projection = Iid(),  # noqa: B008
    ) -> Self:
        _check_projection(projection)
        factors = [projection.draw(number, width(kernel, dim), rng) for _ in range(kernel.degree)]
        return cls(kernel, frozen(np.stack(factors)), projection)  # type: ignore[arg-type]

    @property
    def _block(self) -> int:
        """1 for iid weights, the length of a row for orthogonal ones."""
        return 1 if isinstance(self.projection, Iid) else self._width

    def _factor_moments(self, pair: PairSums) -> tuple[Float64, Float64]:
        d = self._width
        second = pair.norms + 2 * pair.square
        if self.projection.norms == "sqrt_d":
            second = second * (d / (d + 2))
        return second, d * (d * pair.square - pair.norms) / (max(d - 1, 1) * (d + 2))


@final
@dataclass(frozen=True, eq=False, repr=False)
class RademacherSketch(ProductSketch):
    r"""Rademacher sketch: the weights are independent fair signs.

    Kar and Karnick (2012); the variance is :math:`[(N + 2(a - s))^p - a^p] / M` with
    :math:`s = \sum_i \tilde x_i^2 \tilde y_i^2` (Wacker, Kanagawa and Filippone 2022): never above the Gaussian one.
    """

    _is_bounded = True

    def _check_draw(self) -> None:
        check_signs("omega", self.omega, (self.kernel.degree, "M", "width"))

    @classmethod
    def _sample(cls, kernel: Polynomial, number: int, dim: int, rng: np.random.Generator) -> Self:
        return cls(kernel, random_signs(rng, kernel.degree, number, width(kernel, dim)))

    def _factor_moments(self, pair: PairSums) -> tuple[Float64, Float64]:
        """Return E t^2 and E t t' of t = (w.x)(w.y), for independent rows w, w'."""
        return pair.norms + 2 * (pair.square - pair.shared), pair.square
