"""Spectral clustering on features: normalised cuts without a matrix of all pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from kernattn._arrays.graphs import outside_graphs
from kernattn._arrays.namespaces import (
    Array,
    Float64,
    constant,
    frozen,
    indices,
    namespace,
    to_numpy64,
    widest,
    without_flags,
)
from kernattn._arrays.shapes import strips
from kernattn._runtime.checks import instance_of, positive_integer
from kernattn._runtime.deprecated import old_arguments, old_order
from kernattn._runtime.random import RNG, generator
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap
from kernattn.features._nystrom.landmarks import kmeans
from kernattn.solvers._check import widen
from kernattn.solvers._spectrum import BLOCK, ROUNDING, cast_as, project
from kernattn.solvers._sums import check_rows, moments

STARTS = 10  # of k-means, of which the best is taken


@final
@dataclass(frozen=True, eq=False, repr=False)
class SpectralClusters:
    """Clusters of rows, and where new rows belong.

    Its methods take rows x (..., n, d), and `backend` as `moments` does.

    Attributes
    ----------
    phi : FeatureMap
        The map.
    labels : (n,) numpy.ndarray of int64
        The cluster of each row.
    eigenvalues : (M,) numpy.ndarray
        Eigenvalues of the normalised affinity of all rows, descending; the others are 0. The largest is 1, or a little
        more where affinities are negative. A gap after the k-th speaks for k clusters.
    directions : (M, k) numpy.ndarray
        What takes features to the leading eigenvectors.
    centres : (k, k) numpy.ndarray
        Centres of the clusters among rows of these, scaled to length 1.
    """

    phi: FeatureMap
    labels: np.ndarray[tuple[int], np.dtype[np.int64]]
    eigenvalues: Float64
    directions: Float64
    centres: Float64

    def __repr__(self) -> str:
        """Return the number of clusters and the map."""
        return f"SpectralClusters({len(self.centres)} clusters, phi={self.phi!r})"

    @outside_graphs
    def transform(self, x: Array, *, backend: str | None = None) -> Array:
        """Return rows of the leading eigenvectors, extended to x and scaled to length 1, (..., n, k) in the dtype of x.

        Rows whose features are 0 along all eigenvectors stay 0.
        """
        return cast_as(self._embed(x, backend), x)

    @outside_graphs
    def predict(self, x: Array, *, backend: str | None = None) -> Array:
        """Return the clusters of rows by Nystrom's extension of the eigenvectors, (..., n), integers.

        Those of the rows that were clustered are `labels`.
        """
        scores = _score_centres(self._embed(x, backend), self.centres)
        xp, own = namespace(scores=scores), namespace(x=x)
        labels = xp.argmax(scores, axis=-1)
        return labels if own is xp else indices(own, labels, x)

    def _embed(self, x: Array, backend: str | None) -> Array:
        """Return rows of the eigenvectors, of length 1, in the dtype of `project`."""
        return _normalise_rows(project(self.phi, x, self.directions, np.zeros(len(self.centres)), backend))


@old_order(FeatureMap, "phi")
@old_arguments(k="num_clusters")
@without_flags
def spectral_clustering(
    x: Array, phi: FeatureMap, num_clusters: int, *, rng: RNG = None, backend: str | None = None
) -> SpectralClusters:
    r"""Return clusters of rows by the k leading eigenvectors of :math:`D^{-1/2} \Phi \Phi^T D^{-1/2}`, of degrees D.

    Ng, Jordan & Weiss (2002), with the affinity :math:`\phi(x_i)^T \phi(x_j)`, that of a row with itself included.
    Degrees are :math:`\Phi \sum_j \phi(x_j)`, the eigenvectors :math:`u = D^{-1/2} \Phi v` follow from
    :math:`\Phi^T D^{-1} \Phi`, moments with the weights 1 / D, and their rows, scaled to length 1, go to k-means. It
    costs O(n M^2 + M^3), and memory is O(n k + M^2). Rows are walked four times.

    Parameters
    ----------
    x : (n, d) array
        Rows.
    phi : FeatureMap
        The map. Affinities may be negative, degrees must be positive: Nystrom features and positive ones serve best.
    num_clusters : int
        Number k of clusters; at most that of eigenvalues above rounding.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        The ten starts of k-means, of which the best is taken.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation makes the features; None chooses the fastest for these arrays.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> rng = np.random.default_rng(0)
    >>> angle = rng.uniform(0, 2 * np.pi, 1000)
    >>> ring = np.arange(1000) % 2
    >>> x = (1 + 2 * ring)[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    >>> phi = ka.features.nystrom(x, ka.kernels.Gaussian(0.3), 100, rng=0)
    >>> clusters = ka.solvers.spectral_clustering(x, phi, 2, rng=0)
    >>> bool(np.all((clusters.labels == clusters.labels[0]) == (ring == ring[0])))
    True
    """
    instance_of("phi", phi, FeatureMap)
    k, source = positive_integer("num_clusters", num_clusters), generator(rng)
    check_rows(phi, x, None, None, "float64", backend)
    degrees = _sum_affinities(phi, x, backend)
    xp = namespace(x=x)
    weights = constant(xp, 1 / degrees, widest(xp, x), x)
    values, vectors = np.linalg.eigh(moments(x, phi, weights=weights, backend=backend).gram)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    rank = int(np.sum(values > ROUNDING * len(values) * np.finfo(np.float64).eps * values[0]))
    if k > rank:
        raise ParameterError(f"num_clusters must be {rank} at most, the number of eigenvalues above rounding; got {k}")
    directions = vectors[:, :k] / np.sqrt(values[:k])
    rows = to_numpy64(_normalise_rows(project(phi, x, directions, np.zeros(k), backend)))
    centres = max(
        (kmeans(rows, k, source) for _ in range(STARTS)),
        key=lambda each: np.sum(np.max(_score_centres(rows, each), axis=1)),
    )
    labels = np.argmax(_score_centres(rows, centres), axis=1)
    return SpectralClusters(phi, labels, *map(frozen, (values, directions, centres)))


def _sum_affinities(phi: FeatureMap, x: Array, backend: str | None) -> Float64:
    """Return the sums of affinities of rows, which must be positive."""
    n, m = x.shape[0], phi.num_features_of(x.shape[1])
    total = np.zeros(m)
    for here in strips(n, BLOCK // m):
        total += to_numpy64(phi(widen(x[here, ...]), backend=backend)).sum(axis=0)
    degrees = to_numpy64(project(phi, x, total[:, None], np.zeros(1), backend))[:, 0]
    if len(bad := np.flatnonzero(~(degrees > 0))):
        raise ParameterError(
            f"degrees phi(x_i)^T sum_j phi(x_j) must be positive; that of row {bad[0]} is {degrees[bad[0]]:.3g}, as of "
            f"{len(bad)} of {n} rows: take Nystrom features or positive ones, more of them, or a larger lengthscale"
        )
    return degrees


def _normalise_rows(values: Array) -> Array:
    """Return rows of length 1; those of 0 stay."""
    xp = namespace(values=values)
    length = xp.sqrt(xp.sum(values**2, axis=-1, keepdims=True))
    return values / xp.where(length > 0, length, xp.ones_like(length))


def _score_centres(rows: Array, centres: Float64) -> Array:
    """Return r^T c - |c|^2 / 2 of rows and centres, (..., n, k): the largest is that of the nearest centre."""
    xp = namespace(rows=rows)
    right, less = (constant(xp, a, rows.dtype, rows) for a in (centres.T, np.sum(centres**2, axis=1) / 2))
    return xp.matmul(rows, right) - less
