r"""Maps of composite kernels: concatenation for sums, tensor products for products, and multiples.

The members are drawn independently, so means and variances follow from theirs:
:math:`\mathrm{Var} \sum_i t_i = \sum_i \mathrm{Var}\, t_i` and
:math:`\mathrm{Var} \prod_i t_i = \prod_i (\mathrm{Var}\, t_i + (E t_i)^2) - \prod_i (E t_i)^2`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce
from math import log, prod
from operator import add, mul
from types import ModuleType
from typing import Any, Self, final

import numpy as np

from kernattn._array import Array, Host, like, namespace, to_numpy64
from kernattn._check import positive_number
from kernattn._lazy import lazy
from kernattn._random import RNG, generator
from kernattn.errors import KernattnError, NoClosedForm, ParameterError, ShapeError
from kernattn.features.base import FeatureMap
from kernattn.features.bounds import Terms
from kernattn.kernels import Kernel, Product, Scaled, Sum
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = ["Composite", "Concatenated", "Multiple", "Tensor", "composite_features", "concatenate", "multiple", "tensor"]


@dataclass(frozen=True, eq=False)
class Composite(FeatureMap):
    """A map made of maps that were drawn independently."""

    maps: tuple[FeatureMap, ...]

    @final
    @property
    def dim(self) -> int | None:
        """Input dimension d; None where all members take any."""
        return next((phi.dim for phi in self.maps if phi.dim is not None), None)

    @final
    @property
    def spec(self) -> MapSpec | None:
        """None: the ops take the map as computed features."""
        return None

    @abstractmethod
    def reduce(self, parts: Iterable[Any]) -> Any:
        """Return the sum or the product of the members' numbers: of features, or of kernels."""

    @abstractmethod
    def reduce_variances(self, means: list[Host], variances: list[Host]) -> Host:
        """Return the variance of the estimate from the members' means and variances."""

    @final
    def terms(self, x: Host, y: Host) -> Terms:
        """Return what is known of the estimates of pairs x, y (P, d) at n times the members' numbers of terms."""
        members = [phi.terms(x, y) for phi in self.maps]
        kernel = self.reduce(member.kernel for member in members)

        def means(n: int) -> list[Host]:
            return [member.kernel + member.bias(n * member.number) for member in members]

        def variance(n: int) -> Host:
            parts = [_variance(member, phi)(n * member.number) for member, phi in zip(members, self.maps, strict=True)]
            return self.reduce_variances(means(n), parts)

        return Terms(
            number=1,
            features=lambda n: self.reduce(member.features(n * member.number) for member in members),
            kernel=kernel,
            bias=lambda n: np.asarray(self.reduce(means(n)) - kernel),
            variance=variance,
        )

    @abstractmethod
    def join(self, xp: ModuleType, parts: list[ScaledFeatures]) -> ScaledFeatures:
        """Return the features that those of the members give."""

    @final
    def scaled_query(self, x: Array) -> ScaledFeatures:
        """Return the features of queries x (..., n, d), log scale apart."""
        return self.join(namespace(x=x), [phi.scaled_query(x) for phi in self.maps])

    @final
    def scaled_key(self, x: Array) -> ScaledFeatures:
        """Return the features of keys x (..., n, d), log scale apart."""
        return self.join(namespace(x=x), [phi.scaled_key(x) for phi in self.maps])

    @final
    def redraw(self, rng: RNG = None) -> Self:
        """Return a new map of the same design, every member drawn anew."""
        source = generator(rng)
        return replace(self, maps=tuple(phi.redraw(source) for phi in self.maps))


@final
@dataclass(frozen=True, eq=False)
class Concatenated(Composite):
    r"""All features: :math:`\phi(x)^T \phi(y) = \sum_i \phi_i(x)^T \phi_i(y)`; see :func:`concatenate`."""

    def features_of(self, dim: int) -> int:
        """Return M, the sum of the members' numbers of features."""
        return sum(phi.features_of(dim) for phi in self.maps)

    def reduce(self, parts: Iterable[Any]) -> Any:
        """Return the sum of the members' numbers."""
        return sum(parts)

    def reduce_variances(self, means: list[Host], variances: list[Host]) -> Host:
        """Return the sum of the members' variances."""
        return reduce(add, variances)

    def join(self, xp: ModuleType, parts: list[ScaledFeatures]) -> ScaledFeatures:
        """Return the members' features side by side; scales of rows become the largest of them."""
        if all(part.log_scale.shape[-1] == 1 for part in parts):
            unit = reduce(xp.maximum, (part.log_scale for part in parts))  # (..., n, 1)
            return ScaledFeatures(xp.concat([p.values * xp.exp(p.log_scale - unit) for p in parts], axis=-1), unit)
        if all(_is_per_feature(part) for part in parts):
            return ScaledFeatures(parts[0].values, xp.concat([part.log_scale for part in parts], axis=-1))
        wide = [xp.broadcast_arrays(*part) for part in parts]
        return ScaledFeatures(*(xp.concat([part[i] for part in wide], axis=-1) for i in (0, 1)))

    def mean(self, x: Array, y: Array) -> Array:
        """Return the expectation of phi(x).phi(y) over redraws for rowwise pairs: (..., d), (..., d) -> (...)."""
        return reduce(add, (phi.mean(x, y) for phi in self.maps))

    def bias(self, x: Array, y: Array) -> Array:
        """Return the mean less the kernel for rowwise pairs: (..., d), (..., d) -> (...)."""
        return reduce(add, (phi.bias(x, y) for phi in self.maps))

    def variance(self, x: Array, y: Array) -> Array:
        """Return the variance of phi(x).phi(y) over redraws for rowwise pairs: (..., d), (..., d) -> (...)."""
        return reduce(add, (phi.variance(x, y) for phi in self.maps))


@final
@dataclass(frozen=True, eq=False)
class Tensor(Composite):
    r"""All products of features: :math:`\phi(x)^T \phi(y) = \prod_i \phi_i(x)^T \phi_i(y)`; see :func:`tensor`."""

    def features_of(self, dim: int) -> int:
        """Return M, the product of the members' numbers of features."""
        return prod(phi.features_of(dim) for phi in self.maps)

    def reduce(self, parts: Iterable[Any]) -> Any:
        """Return the product of the members' numbers."""
        return prod(parts)

    def reduce_variances(self, means: list[Host], variances: list[Host]) -> Host:
        """Return the product of the members' second moments less that of their squared means."""
        squares = [mean**2 for mean in means]
        seconds = [variance + square for variance, square in zip(variances, squares, strict=True)]
        return reduce(mul, seconds) - reduce(mul, squares)

    def join(self, xp: ModuleType, parts: list[ScaledFeatures]) -> ScaledFeatures:
        """Return the products of the members' features."""
        per_feature = [_is_per_feature(part) for part in parts]
        if any(per_feature) and not all(per_feature):
            parts = [ScaledFeatures(*xp.broadcast_arrays(*part)) for part in parts]
        values = reduce(lambda a, b: _outer(xp, a, b, mul), (part.values for part in parts))
        return ScaledFeatures(values, reduce(lambda a, b: _outer(xp, a, b, add), (part.log_scale for part in parts)))

    def mean(self, x: Array, y: Array) -> Array:
        """Return the expectation of phi(x).phi(y) over redraws for rowwise pairs: (..., d), (..., d) -> (...)."""
        return reduce(mul, (phi.mean(x, y) for phi in self.maps))

    def bias(self, x: Array, y: Array) -> Array:
        """Return the mean less the kernel for rowwise pairs: (..., d), (..., d) -> (...)."""
        pair = to_numpy64(x), to_numpy64(y)
        means = [phi.mean(*pair) for phi in self.maps]
        kernels = [mean - phi.bias(*pair) for mean, phi in zip(means, self.maps, strict=True)]
        return like(reduce(mul, means) - reduce(mul, kernels), x)

    def variance(self, x: Array, y: Array) -> Array:
        """Return the variance of phi(x).phi(y) over redraws for rowwise pairs: (..., d), (..., d) -> (...)."""
        pair = to_numpy64(x), to_numpy64(y)
        means, variances = [phi.mean(*pair) for phi in self.maps], [phi.variance(*pair) for phi in self.maps]
        return like(self.reduce_variances(means, variances), x)


@final
@dataclass(frozen=True, eq=False)
class Multiple(FeatureMap):
    r"""A multiple of a map: :math:`\phi(x)^T \phi(y) = c\, \phi_0(x)^T \phi_0(y)`; see :func:`multiple`."""

    factor: float
    inner: FeatureMap

    @property
    def dim(self) -> int | None:
        """Input dimension d; None where any is taken."""
        return self.inner.dim

    def features_of(self, dim: int) -> int:
        """Return M, the number of features of an input of dimension `dim`."""
        return self.inner.features_of(dim)

    @lazy
    def spec(self) -> MapSpec | None:
        """The map as plain numbers, where the inner one has such."""
        spec = self.inner.spec
        return None if spec is None else replace(spec, amplitude=spec.amplitude * self.factor**0.5)

    def scaled_query(self, x: Array) -> ScaledFeatures:
        """Return the features of queries x (..., n, d), log scale apart."""
        return self._times(self.inner.scaled_query(x))

    def scaled_key(self, x: Array) -> ScaledFeatures:
        """Return the features of keys x (..., n, d), log scale apart."""
        return self._times(self.inner.scaled_key(x))

    def _times(self, part: ScaledFeatures) -> ScaledFeatures:
        if _is_per_feature(part):
            return ScaledFeatures(part.values, part.log_scale + log(self.factor) / 2)
        return ScaledFeatures(part.values * self.factor**0.5, part.log_scale)

    def redraw(self, rng: RNG = None) -> Self:
        """Return a new map of the same design with fresh random numbers."""
        return replace(self, inner=self.inner.redraw(rng))

    def mean(self, x: Array, y: Array) -> Array:
        """Return the expectation of phi(x).phi(y) over redraws for rowwise pairs: (..., d), (..., d) -> (...)."""
        return self.factor * self.inner.mean(x, y)

    def bias(self, x: Array, y: Array) -> Array:
        """Return the mean less the kernel for rowwise pairs: (..., d), (..., d) -> (...)."""
        return self.factor * self.inner.bias(x, y)

    def variance(self, x: Array, y: Array) -> Array:
        """Return the variance of phi(x).phi(y) over redraws for rowwise pairs: (..., d), (..., d) -> (...)."""
        return self.factor**2 * self.inner.variance(x, y)

    def terms(self, x: Host, y: Host) -> Terms:
        """Return what is known of the estimates of pairs x, y (P, d) at any number of the inner map's terms."""
        inner, c = self.inner.terms(x, y), self.factor
        variance, size = inner.variance, inner.size
        return replace(
            inner,
            kernel=c * inner.kernel,
            bias=lambda n: c * inner.bias(n),
            variance=None if variance is None else lambda n: c**2 * variance(n),
            size=None if size is None else c * size,
        )


def concatenate(*maps: FeatureMap) -> Concatenated:
    r"""Return the features of all maps side by side, :math:`\phi(x)^T \phi(y) = \sum_i \phi_i(x)^T \phi_i(y)`.

    It estimates the sum of the maps' kernels. Mean, bias and variance are the sums of theirs, as of maps that were
    drawn independently: give them different seeds.

    Parameters
    ----------
    *maps : FeatureMap
        The maps, of one input dimension.

    Returns
    -------
    Concatenated
        The map; M is the sum of the members' numbers of features.

    Raises
    ------
    ParameterError
        If there is none, or one is no feature map.
    ShapeError
        If their input dimensions differ.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = ka.features.concatenate(ka.features.polynomial(1), ka.features.polynomial(2))
    >>> x, y = np.array([[1.0, 2.0]]), np.array([[3.0, -1.0]])
    >>> (phi(x) @ phi(y).T).round(12)  # 1 + 1^2
    array([[2.]])
    """
    return Concatenated(_checked(maps))


def tensor(*maps: FeatureMap) -> Tensor:
    r"""Return all products of features, :math:`\phi(x)^T \phi(y) = \prod_i \phi_i(x)^T \phi_i(y)`.

    It estimates the product of the maps' kernels. Mean, bias and variance follow from theirs, as of maps that were
    drawn independently: give them different seeds.

    Parameters
    ----------
    *maps : FeatureMap
        The maps, of one input dimension.

    Returns
    -------
    Tensor
        The map; M is the product of the members' numbers of features.

    Raises
    ------
    ParameterError
        If there is none, or one is no feature map.
    ShapeError
        If their input dimensions differ.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = ka.features.tensor(ka.features.polynomial(1), ka.features.polynomial(2))
    >>> x, y = np.array([[1.0, 2.0]]), np.array([[3.0, 1.0]])
    >>> (phi(x) @ phi(y).T).round(12)  # 5 * 5^2
    array([[125.]])
    """
    return Tensor(_checked(maps))


def multiple(factor: float, phi: FeatureMap) -> Multiple:
    r"""Return :math:`c^{1/2} \phi`, which estimates c times the kernel of the map.

    Parameters
    ----------
    factor : float
        The number c, positive.
    phi : FeatureMap
        The map.

    Returns
    -------
    Multiple
        The map.

    Raises
    ------
    ParameterError
        If the factor is no positive number, or phi no feature map.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.features.multiple(4.0, ka.features.relu())(np.array([[1.0, -1.0]]))
    array([[2., 0.]])
    """
    return Multiple(positive_number("factor", factor), _checked((phi,))[0])


def composite_features(
    kernel: Sum | Product | Scaled,
    num_features: int,
    rng: np.random.Generator,
    make: Callable[[Kernel, int], FeatureMap],
) -> Concatenated | Tensor | Multiple:
    """Return the map of a composite kernel, its members' maps made by `make` of a kernel and a number of features.

    Terms of a sum get equal shares of the features, and factors of a product numbers as equal as can be. Where a member
    is refused after another was drawn, the generator that `make` draws from is left as it was.
    """
    before = rng.bit_generator.state
    try:
        return _composite_features(kernel, num_features, make)
    except KernattnError:
        rng.bit_generator.state = before
        raise


def _composite_features(
    kernel: Sum | Product | Scaled, num_features: int, make: Callable[[Kernel, int], FeatureMap]
) -> Concatenated | Tensor | Multiple:
    if isinstance(kernel, Scaled):
        return Multiple(kernel.factor, make(kernel.kernel, num_features))
    members = len(kernel.kernels)
    if isinstance(kernel, Sum):
        if num_features % members:
            raise ParameterError(
                f"num_features must be a multiple of the {members} terms of the sum; got {num_features} "
                "(kernattn.features.concatenate joins maps of any sizes)"
            )
        return Concatenated(tuple(make(member, num_features // members) for member in kernel.kernels))
    sizes = _sizes(num_features, members, 2) or _sizes(num_features, members, 1)
    if min(sizes) == 1 < members:
        raise ParameterError(
            f"num_features must be a product of {members} numbers above 1, one for each factor of the kernel; "
            f"got {num_features} (kernattn.features.tensor multiplies maps of any sizes)"
        )
    return Tensor(tuple(make(member, size) for member, size in zip(kernel.kernels, sizes, strict=True)))


def _sizes(total: int, members: int, step: int) -> tuple[int, ...]:
    """Return `members` multiples of `step` whose product is `total`, as equal as can be; () if there are none."""
    if members == 1:
        return () if total % step else (total,)
    first = round(total ** (1 / members))
    divisors = [size for size in range(step, total + 1, step) if total % size == 0]
    for size in sorted(divisors, key=lambda size: abs(log(size) - log(first))):
        rest = _sizes(total // size, members - 1, step)
        if rest:
            return (size, *rest)
    return ()


def _variance(terms: Terms, phi: FeatureMap) -> Callable[[int], Host]:
    if terms.variance is None:
        raise NoClosedForm(f"no bound is known for {phi!r} as part of another map: it has no variance in closed form")
    return terms.variance


def _is_per_feature(part: ScaledFeatures) -> bool:
    """Is it log features beside values of ones?"""
    return bool(part.values.shape[-1] == 1 < part.log_scale.shape[-1])


def _outer(xp: ModuleType, a: Array, b: Array, op: Callable[[Array, Array], Array]) -> Array:
    """Return all pairs, (..., n, A), (..., n, B) -> (..., n, A B)."""
    pairs = op(a[..., :, None], b[..., None, :])
    return xp.reshape(pairs, (*pairs.shape[:-2], -1))


def _checked(maps: tuple[Any, ...]) -> tuple[FeatureMap, ...]:
    if not maps or not all(isinstance(phi, FeatureMap) for phi in maps):
        raise ParameterError(f"maps must be feature maps, at least one; got {maps!r}")
    dims = {phi.dim for phi in maps if phi.dim is not None}
    if len(dims) > 1:
        raise ShapeError(f"maps must take one input dimension; got {sorted(dims)}")
    return maps
