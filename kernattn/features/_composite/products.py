"""Maps of products of kernels: products of features."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial, reduce
from math import prod
from operator import add, mul
from types import ModuleType
from typing import Any, final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64
from kernattn._maps.spec import ScaledFeatures
from kernattn._sums.units import balance
from kernattn.features._composite.base import Composite
from kernattn.features._moments.pairs import bias_of, clean_variance


@final
@dataclass(frozen=True, eq=False, repr=False)
class TensorProduct(Composite):
    r"""All products of features, of the product of the maps' kernels: :math:`\prod_i \phi_i(x)^T \phi_i(y)`.

    It is written ``phi1 * phi2``, and M is the product of the members' numbers of features. Mean, bias and variance
    follow from theirs, as of maps that were drawn independently: give them different seeds. The parameters and errors
    are those of :class:`Concatenated`.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = ka.features.polynomial(1) * ka.features.polynomial(2)
    >>> x, y = np.array([[1.0, 2.0]]), np.array([[3.0, 1.0]])
    >>> (phi(x) @ phi(y).T).round(12)  # 5 * 5^2
    array([[125.]])
    """

    def num_features_of(self, dim: int) -> int:
        return prod(phi.num_features_of(dim) for phi in self.maps)

    def _reduce(self, parts: Iterable[Any]) -> Any:
        return prod(parts)

    def _reduce_variances(self, means: list[Float64], variances: list[Float64]) -> Float64:
        """Return the product of the members' second moments less that of their squared means."""
        squares = [mean**2 for mean in means]
        seconds = [variance + square for variance, square in zip(variances, squares, strict=True)]
        return reduce(_times, seconds) - reduce(_times, squares)

    def _join(self, xp: ModuleType, parts: list[ScaledFeatures]) -> ScaledFeatures:
        forms = {tuple(array.shape[-1] == 1 for array in part) for part in parts if max(a.shape[-1] for a in part) > 1}
        if len(forms) > 1:
            parts = [ScaledFeatures(*xp.broadcast_arrays(*part)) for part in parts]
        return reduce(partial(_products, xp), parts)

    def _mean(self, x: Float64, y: Float64) -> Float64:
        return reduce(_times, (phi.mean(x, y) for phi in self.maps))

    def _bias(self, x: Float64, y: Float64) -> Float64:
        means = [phi.mean(x, y) for phi in self.maps]
        kernels = [mean - phi.bias(x, y) for mean, phi in zip(means, self.maps, strict=True)]
        return bias_of(reduce(_times, means), reduce(_times, kernels))

    def _variance(self, x: Float64, y: Float64) -> Float64:
        means, variances = [phi.mean(x, y) for phi in self.maps], [phi.variance(x, y) for phi in self.maps]
        return clean_variance(self._reduce_variances(means, variances), reduce(_times, means))


def _times(a: Float64, b: Float64) -> Float64:
    """Return a b, 0 where one of them is, whatever the other one."""
    return np.where(a == 0, a, np.where(b == 0, b, a * b))


def _products(xp: ModuleType, a: ScaledFeatures, b: ScaledFeatures) -> ScaledFeatures:
    """Return the products of two maps' features."""
    return balance(ScaledFeatures(_outer(xp, a.values, b.values, mul), _outer(xp, a.log_scale, b.log_scale, add)))


def _outer(xp: ModuleType, a: Array, b: Array, op: Callable[[Array, Array], Array]) -> Array:
    """Return all pairs, (..., n, A), (..., n, B) -> (..., n, A B)."""
    pairs = op(a[..., :, None], b[..., None, :])
    return xp.reshape(pairs, (*pairs.shape[:-2], -1))
