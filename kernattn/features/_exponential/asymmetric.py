"""Positive random features shaped by the data, with one map for queries and another one for keys."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple, Self, final

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, frozen, without_warnings
from kernattn._maps.spec import MapSpec, QuadraticForm, ScaledFeatures
from kernattn._runtime.checks import host_array, instance_of, shown
from kernattn._runtime.lazy import lazy
from kernattn._runtime.random import RNG
from kernattn.errors import ParameterError
from kernattn.features._base.map import FeatureMap
from kernattn.features._exponential.dense import DenseExponential
from kernattn.features._exponential.tilts import best_tilt
from kernattn.features._moments.bounds import Terms, of_frequencies
from kernattn.features._moments.moments import Moments
from kernattn.features._moments.pairs import bias_of, bring_together
from kernattn.features._moments.tails import Tails
from kernattn.features._spectral.map import IMMENSE, check_exponential
from kernattn.kernels import Kernel, Softmax
from kernattn.ops.features import scaled
from kernattn.projections import Projection


class Balance(NamedTuple):
    r"""Maps :math:`x \mapsto G (x - a)` of queries and :math:`y \mapsto H (y - b)` of keys, :math:`G^T H = I`."""

    query: Float64  # (d, d) G
    key: Float64  # (d, d) H
    query_mean: Float64  # (d,) a
    key_mean: Float64  # (d,) b
    variances: Float64  # (d,) of both sides' rows, turned


@final
@dataclass(frozen=True, eq=False, repr=False)
class AsymmetricExponential(FeatureMap):
    r"""FAVOR# with two maps: :math:`\psi(G(x - a))` of queries and :math:`\psi(H(y - b))` of keys, :math:`G^T H = I`.

    Likhosherstov et al. (2023), asymmetric dense-exponential features, here with the means taken out. In the kernel's
    own scale

    .. math:: e^{x^T y} = e^{(G(x - a))^T H(y - b)}\, e^{x^T b + a^T y - a^T b},

    so with any features :math:`\psi` of the softmax kernel these are unbiased too; :math:`\psi` are those of
    :class:`DenseExponential`, with a diagonal A, and factors of one row go to its features. The logarithm of a term's
    second moment is, up to what no parameter changes,

    .. math:: \sum_i \log(1 - 4A_i) - \frac12 \log(1 - 8A_i) + \frac{1}{1 - 8A_i} (G(x - a) + H(y - b))_i^2.

    Its expectation over independent queries and keys is least where a and b are their means, for only the mean of the
    last factor depends on them, and where G and H balance the covariances: :math:`G S_q G^T = H S_k H^T` is diagonal,
    its entries the singular values of :math:`S_q^{1/2} S_k^{1/2}`. For with the best A the sum is one of concave
    functions of :math:`p_i \geq 2 |X_i| |Y_i|`, the rows of :math:`X = G S_q^{1/2}` and :math:`Y = H S_k^{1/2}`; and of
    all ways to write :math:`S_q^{1/2} S_k^{1/2} = X^T Y` as a sum of d matrices of rank one, the singular value
    decomposition has the least such sum (Rotfel'd 1969). Hence :math:`p_i` is twice a singular value, and :math:`A_i`
    the optimum there.

    Queries and keys alike, of mean 0, gain nothing: this is "favor_sharp" then. The gain is in how they differ, and in
    means: variances of attention's queries and keys that lie along different axes, or a mean that all keys share.
    `variance` is closed where that of :math:`\psi` is, as for iid rows. There are a `query_spec` and a `key_spec` in
    place of one `spec`.
    """

    kernel: Kernel
    inner: DenseExponential  # of e^(x.y)
    query_transform: Float64  # (d, d) G
    key_transform: Float64  # (d, d) H
    query_mean: Float64  # (d,) a
    key_mean: Float64  # (d,) b

    def __post_init__(self) -> None:
        instance_of("inner", self.inner, DenseExponential)
        check_exponential(self.kernel)
        if self.inner.kernel != Softmax(scale=1.0):
            raise ParameterError(f"inner must estimate Softmax(scale=1.0); got {shown(self.inner.kernel)}")
        d = self.inner.omega.shape[1]
        self.kernel.input_scale(d)
        for side in ("query", "key"):
            host_array(f"{side}_transform", getattr(self, f"{side}_transform"), (d, d))
            host_array(f"{side}_mean", getattr(self, f"{side}_mean"), (d,))
        if not np.allclose(self.query_transform.T @ self.key_transform, np.eye(d), atol=1e-6):
            raise ParameterError("key_transform must be the inverse of query_transform, transposed")

    @classmethod
    def _sample(
        cls,
        kernel: Kernel,
        frequencies: int,
        dim: int,
        rng: np.random.Generator,
        projection: Projection,
        balanced: Balance,
    ) -> Self:
        """Draw a map for queries and keys that were balanced."""
        g, h, a, b, variances = balanced
        parameters = {"tilt": frozen(best_tilt(2 * variances)), "basis": frozen(np.eye(dim))}
        inner = DenseExponential._sample(Softmax(scale=1.0), frequencies, dim, rng, projection, **parameters)
        return cls(kernel, inner, frozen(g), frozen(h), frozen(a), frozen(b))

    @property
    def dim(self) -> int:
        return int(self.inner.omega.shape[1])

    @property
    def projection(self) -> Projection:
        """How the frequencies are drawn."""
        return self.inner.projection

    def num_features_of(self, dim: int) -> int:
        return self.inner.num_features_of(dim)

    @lazy
    def query_spec(self) -> MapSpec:
        """The map of queries as plain numbers."""
        return self._spec(self.query_transform, self.query_mean, self.key_mean)

    @lazy
    def key_spec(self) -> MapSpec:
        """The map of keys as plain numbers."""
        return self._spec(self.key_transform, self.key_mean, self.query_mean)

    def _spec(self, transform: Float64, mean: Float64, other: Float64) -> MapSpec:
        """Return the map of x' = c x, which sees transform (x' - mean) beside x' other - mean other / 2."""
        inner, scale = self.inner.spec, self.kernel.input_scale(self.dim)
        omega, offset, weights = np.asarray(inner.omega) @ transform, inner.offset, inner.row_weights
        assert offset is not None
        assert weights is not None
        squares = self.kernel.row_exponent - 0.5
        return replace(
            inner,
            omega=omega * scale,
            row_weights=squares * scale**2 if squares else None,
            offset=offset - omega @ mean - mean @ other / 2,
            row_form=QuadraticForm(np.sqrt(-2 * weights)[:, None] * transform * scale, mean / scale, other * scale),
        )

    def scaled_query(self, x: Array) -> ScaledFeatures:
        return scaled(x, self.query_spec)

    def scaled_key(self, x: Array) -> ScaledFeatures:
        return scaled(x, self.key_spec)

    def redraw(self, rng: RNG = None) -> Self:
        return replace(self, inner=self.inner.redraw(rng))

    def _mean(self, x: Float64, y: Float64) -> Float64:
        return self._moments(x, y).mean

    def _bias(self, x: Float64, y: Float64) -> Float64:
        return bias_of(self._mean(x, y), self.kernel.pairs(x, y))

    def _variance(self, x: Float64, y: Float64) -> Float64:
        return self.inner._variance_of(self._moments(x, y))

    def _terms(self, x: Float64, y: Float64) -> Terms:
        return of_frequencies(self.projection, self.inner.omega.shape, 1, self._moments(x, y), self.bias(x, y), None)

    def _moments(self, x: Float64, y: Float64) -> Moments:
        """Return the moments of one frequency's term for queries x and keys y (..., d)."""
        return self.inner._moments_times(*self._transform(x, y))

    @without_warnings
    def _tails(self, x: Float64, y: Float64) -> Tails:
        left, right, _ = self._transform(x, y)
        return Tails(self.inner._squared_skewness(left, right), len(self.inner.omega))

    def _transform(self, x: Float64, y: Float64) -> tuple[Float64, Float64, Float64]:
        """Return G(x - a), H(y - b), and the logarithm of what the kernel of x and y is of theirs."""
        scale, a, b = self.kernel.input_scale(self.dim), self.query_mean, self.key_mean
        sizes = (scale, a, b, self.query_transform, self.key_transform)
        most = max(1.0, *(float(np.max(np.abs(each))) for each in sizes))
        x, y = (rows * scale for rows in bring_together(x, y, IMMENSE / most))
        rows = (self.kernel.row_exponent - 0.5) * (np.sum(x**2, axis=-1) + np.sum(y**2, axis=-1))
        log = x @ b + y @ a - a @ b + rows
        return (x - a) @ self.query_transform.T, (y - b) @ self.key_transform.T, log


def balance(queries: Float64, keys: Float64) -> Balance:
    r"""Return means and transforms with :math:`G S_q G^T = H S_k H^T` diagonal and :math:`G^T H = I`.

    With :math:`S_q = L_q L_q^T`, :math:`S_k = L_k L_k^T` and the singular value decomposition
    :math:`L_q^T L_k = U \Sigma V^T`, they are :math:`G = \Sigma^{1/2} U^T L_q^{-1}` and
    :math:`H = \Sigma^{-1/2} U^T L_q^T`, and the diagonal is :math:`\Sigma`. The covariances are those of n rows and of
    one more, of the same size along every axis, so that they have full rank.
    """
    a, b = np.mean(queries, axis=0), np.mean(keys, axis=0)
    left, right = (
        np.linalg.cholesky(_covariance(rows, name)) for rows, name in ((queries - a, "queries"), (keys - b, "keys"))
    )
    u, variances, _ = np.linalg.svd(left.T @ right)
    root = np.sqrt(variances)[:, None]
    return Balance(root * np.linalg.solve(left.T, u).T, (left @ u).T / root, a, b, variances)


def _covariance(centred: Float64, name: str) -> Float64:
    n, d = centred.shape
    total = np.sum(centred**2)
    if not total > 0:
        raise ParameterError(f"{name} of data must not all be equal for 'favor_sharp_asymmetric'; got {n} equal rows")
    covariance: Float64 = (centred.T @ centred + total / (n * d) * np.eye(d)) / (n + 1)
    return covariance
