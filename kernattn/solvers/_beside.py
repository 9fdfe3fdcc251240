"""Kernels of which features are the part that landmarks know: of Nystrom maps, beside others or of turned rows."""

from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, namespace, widest
from kernattn._gradients import vjp
from kernattn.errors import NoClosedForm
from kernattn.features import Concatenated, FeatureMap, Nystrom, Transformed
from kernattn.kernels import Kernel
from kernattn.kernels._pullbacks import pull
from kernattn.kernels._stationary import OfDifferences

STRIP = 64  # rows whose own kernel values are pulled back at a time


class OfFeatures(NamedTuple):
    """The kernel that features are all of, phi(x)^T phi(y)."""

    phi: FeatureMap

    def __call__(self, x: Array, y: Array | None = None) -> Array:
        """Return the products of features (..., n, k)."""
        left = self.phi(x)
        xp = namespace(x=left)
        return xp.matmul(left, xp.matrix_transpose(left if y is None else self.phi(y)))

    def diag(self, x: Array) -> Array:
        """Return the squared norms of features (..., n)."""
        features = self.phi(x)
        return namespace(x=features).sum(features * features, axis=-1)

    def pull_diag(self, x: Float64, g: Float64) -> Float64:
        """Return the cotangents of rows (n, d) from those of their own values (n,)."""
        features, pulled = vjp(self.phi, x)
        rows: Float64 = pulled(2 * g[:, None] * features).x
        return rows


class Turned(NamedTuple):
    """The kernel of rows times a matrix."""

    inner: Any
    phi: Transformed

    def __call__(self, x: Array, y: Array | None = None) -> Array:
        """Return the inner kernel's values (..., n, k)."""
        return self.inner(self._turn(x), None if y is None else self._turn(y))

    def diag(self, x: Array) -> Array:
        """Return the inner kernel's own values (..., n)."""
        return self.inner.diag(self._turn(x))

    def pull_diag(self, x: Float64, g: Float64) -> Float64:
        """Return the cotangents of rows (n, d) from those of their own values (n,)."""
        return pull_own(self.inner, x @ self.phi.matrix, g) @ self.phi.matrix.T

    def _turn(self, x: Array) -> Array:
        return self.phi._turn(x, widest(namespace(x=x), x))


class Added(NamedTuple):
    """The sum of kernels."""

    parts: tuple[Any, ...]

    def __call__(self, x: Array, y: Array | None = None) -> Array:
        """Return the sum of their values (..., n, k)."""
        return sum(part(x, y) for part in self.parts)

    def diag(self, x: Array) -> Array:
        """Return the sum of their own values (..., n)."""
        return sum(part.diag(x) for part in self.parts)

    def pull_diag(self, x: Float64, g: Float64) -> Float64:
        """Return the cotangents of rows (n, d) from those of their own values (n,)."""
        rows: Float64 = np.sum([pull_own(part, x, g) for part in self.parts], axis=0)
        return rows


def kernel_beside(phi: FeatureMap) -> Any:
    """Return the kernel whose part that features lack counts, of Nystrom maps alone or within; None of others."""
    if isinstance(phi, Nystrom):
        if phi.kernel is None:
            raise NoClosedForm("a map of a precomputed kernel knows no k(x, x), which the variance needs")
        return phi.kernel
    if isinstance(phi, Transformed):
        inner = kernel_beside(phi.inner)
        return None if inner is None else Turned(inner, phi)
    if isinstance(phi, Concatenated):
        parts = [kernel_beside(each) for each in phi.maps]
        if any(part is not None for part in parts):
            pairs = zip(parts, phi.maps, strict=True)
            return Added(tuple(OfFeatures(each) if part is None else part for part, each in pairs))
    return None


def pull_own(kernel: Any, x: Float64, g: Float64) -> Float64:
    """Return the cotangents of rows (n, d) from those of k(x, x), (n,): 0 of kernels of differences."""
    if not isinstance(kernel, Kernel):
        rows: Float64 = kernel.pull_diag(x, g)
        return rows
    if isinstance(kernel, OfDifferences):
        return np.zeros_like(x)
    parts = []
    for first in range(0, len(x), STRIP):
        some, diagonal = x[first : first + STRIP], np.diag(g[first : first + STRIP])
        one, other = pull(kernel, some, some, diagonal)
        parts.append(one + other)
    return np.concatenate(parts)
