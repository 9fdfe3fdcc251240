"""How cotangents flow back through maps whose features no op computes: landmarks, bases, sums and products of maps."""

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, constant, namespace, without_flags
from kernattn._gradients.maps import MapGradients, check_differentiable
from kernattn._gradients.recorded import like, run_with_pullback
from kernattn.features import Concatenated, FeatureMap, ScaledMap, TensorProduct, Transformed
from kernattn.features._lengthscales import has_own
from kernattn.kernels import Stationary


class FeatureGradients(NamedTuple):
    """Of a feature map. A map without a spec has the cotangent of its kernel's lengthscale, all else held.

    Of a map of several kernels, and of a kernel of several, it is a tuple of those of each, None of one without.
    """

    x: Array
    phi: MapGradients


Pull = Callable[[Array], tuple[Array, Any]]
"""From cotangents of features to those of rows, and of lengthscales."""


@without_flags
def computed_features(
    phi: FeatureMap, x: Array, key: bool, backend: str | None
) -> tuple[Array, Callable[[Any], FeatureGradients]]:
    """Return the features of rows (..., n, d), and their pullback."""
    phi._check(x, key=key)
    xp = namespace(x=x)
    rows = xp.reshape(xp.astype(x, accumulation_dtype(xp, x), copy=False), (-1, x.shape[-1]))
    pulled = pull_of(phi, rows, key, backend)[1]
    out = (phi.key if key else phi.query)(x, backend=backend)

    @without_flags
    def pullback(cotangent: Any) -> FeatureGradients:
        g = xp.astype(like("the cotangent", cotangent, out), rows.dtype, copy=False)
        dx, lengthscale = pulled(xp.reshape(g, (-1, g.shape[-1])))
        numbers = MapGradients(lengthscale=lengthscale)
        return FeatureGradients(xp.astype(xp.reshape(dx, tuple(x.shape)), x.dtype, copy=False), numbers)

    return out, pullback


def pull_of(phi: FeatureMap, x: Array, key: bool = False, backend: str | None = None) -> tuple[Array | None, Pull]:
    """Return the pullback from cotangents of features of rows (n, d) to those of the rows, and of lengthscales.

    The features are beside it where they had to be made.
    """
    spec = phi.key_spec if key else phi.query_spec
    if isinstance(phi, Concatenated | TensorProduct) and spec is None:
        return None, _composite(phi, x, key, backend)
    if isinstance(phi, ScaledMap) and spec is None:
        inner, factor = pull_of(phi.inner, x, key, backend)[1], phi.factor**0.5
        return None, lambda g: inner(factor * g)
    if isinstance(phi, Transformed):
        return _transformed(phi, x, key, backend)
    if spec is None:
        return None, phi._pullback(x)
    check_differentiable(phi)
    (out,), pulled = run_with_pullback("features", (phi._rows(x), spec), backend, phi)
    while isinstance(phi, ScaledMap):
        phi = phi.inner
    if not has_own(phi):
        return out, lambda g: (pulled(g)["x"].x, None)
    kernel: Stationary = phi.kernel  # type: ignore[attr-defined]
    xp, numbers = namespace(x=x), np.asarray(kernel.lengthscale, np.float64)

    def divided(g: Array) -> tuple[Array, Any]:
        dx = pulled(g)["x"].x  # rows are divided by lengthscales
        each = -xp.sum(x * dx, axis=0) / constant(xp, numbers, x.dtype, x)
        return dx, each if numbers.ndim else xp.sum(each)

    return out, divided


def _transformed(phi: Transformed, x: Array, key: bool, backend: str | None) -> tuple[Array | None, Pull]:
    xp, matrix = namespace(x=x), constant(namespace(x=x), phi.matrix.T, x.dtype, x)
    out, inner = pull_of(phi.inner, phi._turn(x, x.dtype), key, backend)

    def turned(g: Array) -> tuple[Array, Any]:
        dz, lengthscales = inner(g)
        return xp.matmul(dz, matrix), lengthscales

    return out, turned


def _composite(phi: Concatenated | TensorProduct, x: Array, key: bool, backend: str | None) -> Pull:
    xp, maps = namespace(x=x), phi.maps
    pulls = [pull_of(member, x, key, backend)[1] for member in maps]
    if isinstance(phi, Concatenated):
        sizes = [member.num_features_of(x.shape[-1]) for member in maps]
        starts = [sum(sizes[:i]) for i in range(len(sizes))]

        def apart(g: Array) -> tuple[Array, Any]:
            parts = [pull(g[:, i : i + size]) for pull, i, size in zip(pulls, starts, sizes, strict=True)]
            return reduce(add, (part[0] for part in parts)), tuple(part[1] for part in parts)

        return apart
    features = [(member.key if key else member.query)(x, backend=backend) for member in maps]

    def across(g: Array) -> tuple[Array, Any]:
        g = xp.reshape(g, (x.shape[0], *(part.shape[1] for part in features)))
        parts = []
        for i, pull in enumerate(pulls):
            of_one = g
            for j in reversed(range(len(features))):  # the last axis first, so that those before it keep their places
                if j != i:
                    shape = (x.shape[0], *(features[j].shape[1] if k == j else 1 for k in range(of_one.ndim - 1)))
                    of_one = xp.sum(of_one * xp.reshape(features[j], shape), axis=j + 1)
            parts.append(pull(of_one))
        return reduce(add, (part[0] for part in parts)), tuple(part[1] for part in parts)

    return across
