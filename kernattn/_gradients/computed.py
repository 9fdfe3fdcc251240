"""How cotangents flow back through maps whose features no op computes: landmarks, bases, sums and products of maps."""

from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any, NamedTuple

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace
from kernattn._gradients.maps import MapGradients, check_differentiable
from kernattn._gradients.recorded import like, recorded
from kernattn.features import Concatenated, FeatureMap, Nystrom, ScaledMap, TensorProduct


class FeatureGradients(NamedTuple):
    """Of a feature map. A map of landmarks has the cotangent of its kernel's lengthscale, landmarks held."""

    x: Array
    phi: MapGradients


Pull = Callable[[Array], tuple[Array, Array | None]]
"""From cotangents of features to those of rows, and of lengthscales (d,)."""


def computed_features(
    phi: FeatureMap, x: Array, key: bool, backend: str | None
) -> tuple[Array, Callable[[Any], FeatureGradients]]:
    """Return the features of rows (..., n, d), and their pullback."""
    phi._check(x, key=key)
    xp = namespace(x=x)
    rows = xp.reshape(xp.astype(x, accumulation_dtype(xp, x), copy=False), (-1, x.shape[-1]))
    pulled = _pullback(phi, rows, key, backend)
    out = (phi.key if key else phi.query)(x, backend=backend)

    def pullback(cotangent: Any) -> FeatureGradients:
        g = xp.astype(like("the cotangent", cotangent, out), rows.dtype, copy=False)
        dx, lengthscale = pulled(xp.reshape(g, (-1, g.shape[-1])))
        if lengthscale is not None and isinstance(phi.kernel.lengthscale, float):  # type: ignore[attr-defined]
            lengthscale = xp.sum(lengthscale)
        numbers = MapGradients(lengthscale=lengthscale if isinstance(phi, Nystrom) else None)
        return FeatureGradients(xp.astype(xp.reshape(dx, tuple(x.shape)), x.dtype, copy=False), numbers)

    return out, pullback


def _pullback(phi: FeatureMap, x: Array, key: bool, backend: str | None) -> Pull:
    """Return what takes cotangents of features of rows (n, d) to those of the rows."""
    spec = phi.key_spec if key else phi.query_spec
    if isinstance(phi, ScaledMap) and spec is None:
        inner, factor = _pullback(phi.inner, x, key, backend), phi.factor**0.5
        return lambda g: (inner(factor * g)[0], None)
    if isinstance(phi, Concatenated | TensorProduct):
        return _composite(phi, x, key, backend)
    if spec is None:
        return phi._pullback(x)
    check_differentiable(phi)
    _, pulled = recorded("features", (phi._rows(x), spec), backend, phi)
    return lambda g: (pulled(g)["x"].x, None)


def _composite(phi: Concatenated | TensorProduct, x: Array, key: bool, backend: str | None) -> Pull:
    xp, maps = namespace(x=x), phi.maps
    pulls = [_pullback(member, x, key, backend) for member in maps]
    if isinstance(phi, Concatenated):
        sizes = [member.num_features_of(x.shape[-1]) for member in maps]
        starts = [sum(sizes[:i]) for i in range(len(sizes))]

        def apart(g: Array) -> tuple[Array, Array | None]:
            parts = (pull(g[:, i : i + size])[0] for pull, i, size in zip(pulls, starts, sizes, strict=True))
            return reduce(add, parts), None

        return apart
    features = [(member.key if key else member.query)(x, backend=backend) for member in maps]

    def across(g: Array) -> tuple[Array, Array | None]:
        g = xp.reshape(g, (x.shape[0], *(part.shape[1] for part in features)))
        total = 0.0
        for i, pull in enumerate(pulls):
            of_one = g
            for j in reversed(range(len(features))):  # the last axis first, so that those before it keep their places
                if j != i:
                    shape = (x.shape[0], *(features[j].shape[1] if k == j else 1 for k in range(of_one.ndim - 1)))
                    of_one = xp.sum(of_one * xp.reshape(features[j], shape), axis=j + 1)
            total = total + pull(of_one)[0]
        return total, None

    return across
