"""Maps of products of kernels: products of features."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial, reduce
from math import prod
from operator import add, mul
from types import ModuleType
from typing import Any, final

from kernattn._arrays.namespaces import Array, Float64, like, namespace, to_numpy64
from kernattn._maps.spec import ScaledFeatures
from kernattn._sums.units import balanced
from kernattn.features._base.map import FeatureMap
from kernattn.features._composite.base import Composite
from kernattn.features._moments.pairs import beyond, gap, spread


@final
@dataclass(frozen=True, eq=False, repr=False)
class Tensor(Composite):
    r"""All products of features: :math:`\phi(x)^T \phi(y) = \prod_i \phi_i(x)^T \phi_i(y)`; see :func:`tensor`."""

    def num_features_of(self, dim: int) -> int:
        """Return M, the product of the members' numbers of features."""
        return prod(phi.num_features_of(dim) for phi in self.maps)

    def _reduce(self, parts: Iterable[Any]) -> Any:
        """Return the product of the members' numbers."""
        return prod(parts)

    def _reduce_variances(self, means: list[Float64], variances: list[Float64]) -> Float64:
        """Return the product of the members' second moments less that of their squared means."""
        squares = [mean**2 for mean in means]
        seconds = [variance + square for variance, square in zip(variances, squares, strict=True)]
        return reduce(_times, seconds) - reduce(_times, squares)

    def _join(self, xp: ModuleType, parts: list[ScaledFeatures]) -> ScaledFeatures:
        """Return the products of the members' features."""
        forms = {tuple(array.shape[-1] == 1 for array in part) for part in parts if max(a.shape[-1] for a in part) > 1}
        if len(forms) > 1:
            parts = [ScaledFeatures(*xp.broadcast_arrays(*part)) for part in parts]
        return reduce(partial(_products, xp), parts)

    @beyond
    def mean(self, x: Array, y: Array) -> Array:
        """Return the expectation of phi(x).phi(y) over redraws for rowwise pairs: (..., d), (..., d) -> (...)."""
        return reduce(_times, (phi.mean(x, y) for phi in self.maps))

    @beyond
    def bias(self, x: Array, y: Array) -> Array:
        """Return the mean less the kernel for rowwise pairs: (..., d), (..., d) -> (...)."""
        pair = to_numpy64(x), to_numpy64(y)
        means = [phi.mean(*pair) for phi in self.maps]
        kernels = [mean - phi.bias(*pair) for mean, phi in zip(means, self.maps, strict=True)]
        return like(gap(reduce(_times, means), reduce(_times, kernels)), x)

    @beyond
    def variance(self, x: Array, y: Array) -> Array:
        """Return the variance of phi(x).phi(y) over redraws for rowwise pairs: (..., d), (..., d) -> (...)."""
        pair = to_numpy64(x), to_numpy64(y)
        means, variances = [phi.mean(*pair) for phi in self.maps], [phi.variance(*pair) for phi in self.maps]
        return like(spread(self._reduce_variances(means, variances), reduce(_times, means)), x)


def tensor(*maps: FeatureMap) -> Tensor:
    r"""Return all products of features, :math:`\phi(x)^T \phi(y) = \prod_i \phi_i(x)^T \phi_i(y)`.

    It estimates the product of the maps' kernels. Mean, bias and variance follow from theirs, as of maps that were
    drawn independently: give them different seeds. The parameters and errors are those of :func:`concatenate`.

    Returns
    -------
    Tensor
        The map; M is the product of the members' numbers of features.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = ka.features.tensor(ka.features.polynomial(1), ka.features.polynomial(2))
    >>> x, y = np.array([[1.0, 2.0]]), np.array([[3.0, 1.0]])
    >>> (phi(x) @ phi(y).T).round(12)  # 5 * 5^2
    array([[125.]])
    """
    return Tensor(maps)


def _times(a: Array, b: Array) -> Array:
    """Return a b, 0 where one of them is, whatever the other one."""
    xp = namespace(a=a, b=b)
    return xp.where(a == 0, a, xp.where(b == 0, b, a * b))


def _products(xp: ModuleType, a: ScaledFeatures, b: ScaledFeatures) -> ScaledFeatures:
    """Return the products of two maps' features."""
    return balanced(ScaledFeatures(_outer(xp, a.values, b.values, mul), _outer(xp, a.log_scale, b.log_scale, add)))


def _outer(xp: ModuleType, a: Array, b: Array, op: Callable[[Array, Array], Array]) -> Array:
    """Return all pairs, (..., n, A), (..., n, B) -> (..., n, A B)."""
    pairs = op(a[..., :, None], b[..., None, :])
    return xp.reshape(pairs, (*pairs.shape[:-2], -1))
