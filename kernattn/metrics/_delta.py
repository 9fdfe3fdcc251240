"""The error of linear attention, predicted in closed form."""

from __future__ import annotations

import numpy as np

from kernattn._array import Array, Float64, like, namespace, to_numpy64
from kernattn._check import instance_of, shown
from kernattn.errors import NoClosedForm, ParameterError, ShapeError
from kernattn.features import FeatureMap
from kernattn.features._moments.pairs import beyond
from kernattn.features._spectral.map import RandomFeatureMap
from kernattn.metrics._attention import DeltaMethod
from kernattn.metrics._check import filled

__all__ = ["attention_delta_method"]


@beyond
def attention_delta_method(q: Array, k: Array, v: Array, phi: FeatureMap) -> DeltaMethod:
    r"""Delta method for N/Z: bias ~ N Var(Z)/Z^3 - Cov(N,Z)/Z^2, variance ~ Var(N - c Z)/Z^2, c = N/Z, from moments.

    As `ratio_delta_method`, with exact moments over redraws of the map in place of measured ones:
    :math:`N = \sum_j \hat k_j v_j` and :math:`Z = \sum_j \hat k_j`, where for m independent frequencies
    :math:`\mathrm{Cov}(\hat k_j, \hat k_l) = (E\,t(q, k_j)\,t(q, k_l) - k_j k_l) / m`. A term t of an exponential map
    is log-linear in :math:`q + k_j`, so the product is the square of the term at the middle of the two keys, times
    :math:`e^{(c - 1)|k_j - k_l|^2 / 2}`, c = 1/2 for softmax and 0 for the Gaussian kernel.

    Parameters
    ----------
    q : array (n, d)
        Queries.
    k : array (l, d)
        Keys, seen by every query.
    v : array (l, e)
        Values.
    phi : FeatureMap
        A map of estimator "positive", "optimal_positive" or "favor_sharp" with independent frequencies.

    Returns
    -------
    DeltaMethod
        bias and variance (n, e), relative_sd (n,), in the kind and dtype of v. Sums over pairs of keys: O(n l^2 d).

    Raises
    ------
    NoClosedForm
        If the map is none of these, or its frequencies depend on each other.
    ParameterError
        If moments are beyond float64: q or k is too far from 0.
    ShapeError
        If shapes do not fit.
    EmptyInputError
        An axis of length 0.
    DTypeError, MixedLibraryError
        Not arrays of real floating dtype, or not of one library; phi is no feature map.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> q, k = np.array([[0.5, 0.0]]), np.array([[0.5, 0.5], [-0.5, 0.0]])
    >>> phi = ka.random_features(ka.kernels.Softmax(), 2, 100, "positive", "iid")
    >>> prediction = ka.metrics.attention_delta_method(q, k, np.array([[1.0], [0.0]]), phi)
    >>> print(prediction.bias.round(5), prediction.variance.round(5))
    [[-0.00202]] [[0.00083]]
    """
    namespace(q=q, k=k, v=v)
    for name, array in (("q", q), ("k", k), ("v", v)):
        filled(name, array)
        if array.ndim != 2:
            raise ShapeError(f"{name} must be a matrix; got shape {tuple(array.shape)}")
    instance_of("phi", phi, FeatureMap)
    if not (isinstance(phi, RandomFeatureMap) and phi._log_linear) or phi.projection.pairs(*phi.omega.shape):
        raise NoClosedForm(
            "the covariance of two kernel estimates is known for 'positive', 'optimal_positive' and 'favor_sharp' maps "
            f"with projection 'iid'; got {shown(phi)}"
        )
    d = phi.omega.shape[1]
    if q.shape[1] != d or k.shape[1] != d or v.shape[0] != k.shape[0]:
        shapes = ", ".join(str(tuple(array.shape)) for array in (q, k, v))
        raise ShapeError(f"q, k and v must be (n, d = {d}), (l, d) and (l, e); got {shapes}")
    queries, keys, values = to_numpy64(q) * phi._input_scale, to_numpy64(k) * phi._input_scale, to_numpy64(v)
    parts = [_of_query(phi, query, keys, values) for query in queries]
    found = [np.stack(part) for part in zip(*parts, strict=True)]
    if not all(np.isfinite(part).all() for part in found):
        reach = float(np.max(np.abs(queries))), float(np.max(np.abs(keys))), float(np.max(np.abs(values)))
        raise ParameterError(
            "q, k and v must be so near 0 that the squared moments of the estimates are floats, |q'|^2 + |k'|^2 up to "
            f"about 100 for q' and k' in the kernel's scale; their largest numbers are {reach[0]:.3g}, {reach[1]:.3g} "
            f"and {reach[2]:.3g}"
        )
    return DeltaMethod(*(like(part, v) for part in found))


def _of_query(phi: RandomFeatureMap, q: Float64, k: Float64, v: Float64) -> tuple[Float64, Float64, Float64]:
    """Return bias (e,), variance (e,) and sd(Z)/Z () for one query and all keys, scaled."""
    exact = phi._moments(q, k).mean  # (l,)
    middle, gap = (k[:, None] + k[None]) / 2, np.sum((k[:, None] - k[None]) ** 2, axis=-1)
    products = phi._moments(q, middle).second * np.exp((phi.kernel.row_exponent - 1) * gap / 2)
    covariance = (products - np.outer(exact, exact)) / len(phi.omega)  # (l, l)
    z = np.sum(exact)
    ratio = exact @ v / z  # (e,)
    variance_z, with_z = np.sum(covariance), np.sum(covariance, axis=1) @ v
    residual = v - ratio  # (l, e)
    variance = np.einsum("je,jl,le->e", residual, covariance, residual) / z**2
    return ratio * variance_z / z**2 - with_z / z**2, np.maximum(variance, 0.0), np.asarray(np.sqrt(variance_z) / z)
