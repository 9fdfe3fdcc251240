"""The exact feature map of the polynomial kernel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, combinations_with_replacement, pairwise
from math import comb, factorial
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, Float64, constant, namespace, placement
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.checks import instance_of, positive_integer, shown
from kernattn.errors import ParameterError
from kernattn.features._base.deterministic import ExactMap
from kernattn.features._polynomial.inputs import unit_rows, width
from kernattn.kernels import Polynomial


@final
@dataclass(frozen=True, eq=False, repr=False)
class Monomials(ExactMap):
    r"""All monomials of one degree, each once, weighted so that :math:`\phi(x)^T \phi(y) = (\gamma x^T y + c_0)^p`."""

    kernel: Polynomial

    def __post_init__(self) -> None:
        instance_of("kernel", self.kernel, Polynomial)

    @classmethod
    def _sample(cls, kernel: Polynomial, number: int, dim: int, rng: np.random.Generator) -> Self:
        """Return the map, which must have so many features; nothing is drawn."""
        phi = cls(kernel)
        if number != phi.num_features_of(dim):
            raise ParameterError(
                f"estimator 'exact' has {phi.num_features_of(dim)} features for {shown(kernel)} at dim = {dim}; "
                f"got num_features = {number}"
            )
        return phi

    def num_features_of(self, dim: int) -> int:
        """Return M, the number of monomials in `dim` variables, and the constant where there is one."""
        return comb(width(self.kernel, positive_integer("dim", dim)) + self.kernel.degree - 1, self.kernel.degree)

    def scaled_query(self, x: Array) -> ScaledFeatures:
        rows, log_size = unit_rows(self.kernel, x)
        return ScaledFeatures(monomials(rows, self.kernel.degree), self.kernel.degree * log_size)


def monomials(x: Array, degree: int) -> Array:
    r"""Return :math:`\sqrt{p! / \prod_i a_i!} \prod_i x_i^{a_i}` for all :math:`\sum_i a_i = p`, p the degree."""
    xp = namespace(x=x)
    factors, weights = _table(x.shape[-1], degree)
    values = constant(xp, weights, x.dtype, x)
    for column in factors:
        values = values * xp.take(x, xp.asarray(column, **placement(x)), axis=-1)
    return values


@lru_cache(maxsize=16)
def _table(dim: int, degree: int) -> tuple[NDArray[np.int64], Float64]:
    """Return the factors of each monomial, (p, M), and the square roots of the multinomial coefficients, (M,)."""
    count = comb(dim + degree - 1, degree)
    flat = chain.from_iterable(combinations_with_replacement(range(dim), degree))
    factors = np.fromiter(flat, np.int64, count * degree).reshape(count, degree).T.copy()
    repeats, divisor = np.ones(count), np.ones(count)
    for previous, column in pairwise(factors):
        repeats = np.where(column == previous, repeats + 1, 1)
        divisor *= repeats  # 1 * 2 * ... * a for a variable that comes a times
    return factors, np.sqrt(factorial(degree) / divisor)


def polynomial(degree: int = 2, gamma: float = 1.0, coef0: float = 0.0) -> Monomials:
    r"""Return the exact map of :math:`k(x, y) = (\gamma x^T y + c_0)^p`.

    Its features are :math:`\sqrt{p! / \prod_i a_i!} \prod_i x_i^{a_i}` over the multi-indices with
    :math:`\sum_i a_i = p`: the symmetric half of the p-fold outer product, :math:`M = \binom{d + p - 1}{p}` instead of
    :math:`d^p`. A constant counts as one more variable, of value :math:`c_0^{1/2}`, beside :math:`\gamma^{1/2} x`.

    Parameters and errors are those of `kernattn.kernels.Polynomial`.

    Returns
    -------
    Monomials
        The map; it takes any dimension d.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x, y = np.array([[1.0, 2.0]]), np.array([[3.0, -1.0]])
    >>> phi = ka.features.polynomial(2)
    >>> phi(x).shape, (phi(x) @ phi(y).T).round(12), (x @ y.T) ** 2
    ((1, 3), array([[1.]]), array([[1.]]))
    """
    return Monomials(Polynomial(degree, gamma, coef0))
