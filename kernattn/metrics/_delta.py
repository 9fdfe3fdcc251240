"""The error of linear attention, predicted in closed form."""

from __future__ import annotations

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, like, namespace, to_numpy64, without_warnings
from kernattn._runtime.checks import instance_of, shown
from kernattn.errors import NoClosedForm, ParameterError, ShapeError
from kernattn.features import DenseExponential, FeatureMap, RandomFeatureMap
from kernattn.features._exponential.dense import ALIKE
from kernattn.features._moments.orthogonal import REACH, orthogonal_cross
from kernattn.features._spectral.spectra import has_normal_frequencies
from kernattn.metrics._attention import DeltaMethod
from kernattn.metrics._check import check_filled
from kernattn.projections import NORM_LAWS, Pair

ROUNDING = 1e-20  # of Z^2: a variance below it is none


@without_warnings
def attention_delta_method(q: Array, k: Array, v: Array, phi: FeatureMap) -> DeltaMethod:
    r"""Delta method for N/Z: bias ~ N Var(Z)/Z^3 - Cov(N,Z)/Z^2, variance ~ Var(N - c Z)/Z^2, c = N/Z, from moments.

    As `ratio_delta_method`, with exact moments over redraws of the map in place of measured ones:
    :math:`N = \sum_j \hat k_j v_j` and :math:`Z = \sum_j \hat k_j`. With D normal frequencies and terms t of one each,

    .. math:: \mathrm{Cov}(\hat k_j, \hat k_l) = \frac1D (E\,t(q, k_j)\,t(q, k_l) - k_j k_l)
              + \frac{P}{D^2} (E\,t_\omega(q, k_j)\,t_{\omega'}(q, k_l) - k_j k_l),

    where P ordered pairs of frequencies are orthogonal, none of them if they are independent. The first mean is that of
    a normal variable's exponential, the second one a hypergeometric function of a 2 x 2 matrix. The third moment of Z,
    whose size over the second one's is `tail`, counts frequencies as independent.

    A prediction means something where `DeltaMethod.trusted` says so.

    Parameters
    ----------
    q : array (n, d)
        Queries.
    k : array (l, d)
        Keys, seen by every query.
    v : array (l, e)
        Values.
    phi : FeatureMap
        A map of estimator "trigonometric", "positive", "hyperbolic", "optimal_positive" or "favor_sharp" (of orthogonal
        rows with one tilt for all axes), with independent or orthogonal frequencies of norms "chi"; NoClosedForm is
        raised for others.

    Returns
    -------
    DeltaMethod
        bias and variance (n, e), relative_sd and tail (n,), in the kind and dtype of v. It takes O(n l^3).

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> q, k = np.array([[0.5, 0.0]]), np.array([[0.5, 0.5], [-0.5, 0.0]])
    >>> phi = ka.random_features(ka.kernels.Softmax(), 2, 100, "positive", "iid", rng=0)
    >>> prediction = ka.metrics.attention_delta_method(q, k, np.array([[1.0], [0.0]]), phi)
    >>> print(prediction.bias.round(5), prediction.variance.round(5))
    [[-0.00202]] [[0.00083]]
    """
    namespace(q=q, k=k, v=v)
    for name, array in (("q", q), ("k", k), ("v", v)):
        check_filled(name, array)
        if array.ndim != 2:
            raise ShapeError(f"{name} must be a matrix; got shape {tuple(array.shape)}")
    instance_of("phi", phi, FeatureMap)
    if not isinstance(phi, RandomFeatureMap):
        raise NoClosedForm(f"the covariance of two estimates is not known for {type(phi).__name__}")
    pairs = _count_orthogonal_pairs(phi)
    d = phi.omega.shape[1]
    if q.shape[1] != d or k.shape[1] != d or v.shape[0] != k.shape[0]:
        shapes = ", ".join(str(tuple(array.shape)) for array in (q, k, v))
        raise ShapeError(f"q, k and v must be (n, d = {d}), (l, d) and (l, e); got {shapes}")
    queries, keys, values = to_numpy64(q) * phi._input_scale, to_numpy64(k) * phi._input_scale, to_numpy64(v)
    parts = [_predict_query(phi, pairs, query, keys, values) for query in queries]
    moments = [np.stack(part) for part in zip(*parts, strict=True)]
    if not all(np.isfinite(part).all() for part in moments):
        reach = float(np.max(np.abs(queries))), float(np.max(np.abs(keys))), float(np.max(np.abs(values)))
        raise ParameterError(
            "q, k and v must be so near 0 that the squared moments of the estimates are floats, |q'|^2 + |k'|^2 up to "
            f"about 100 for q' and k' in the kernel's scale; their largest numbers are {reach[0]:.3g}, {reach[1]:.3g} "
            f"and {reach[2]:.3g}"
        )
    return DeltaMethod(*(like(part, v) for part in moments))


def _count_orthogonal_pairs(phi: RandomFeatureMap) -> int:
    """Return how many ordered pairs of frequencies are orthogonal; raise where others depend on each other."""
    pairs, (_, d) = phi.projection.pairs(*phi.omega.shape), phi.omega.shape
    normal = has_normal_frequencies(phi.kernel) and phi.projection.law() == NORM_LAWS["chi"]
    known = normal and phi.projection.sphere(*phi.omega.shape) == d and pairs.keys() <= {Pair(0.0)}
    tilts = phi.tilt if isinstance(phi, DenseExponential) else np.zeros(1)
    if not known or (pairs and np.ptp(tilts) > ALIKE * (1 + np.max(np.abs(tilts)))):
        raise NoClosedForm(
            "the covariance of two estimates is known for normal frequencies, norms 'chi', that are independent, or "
            f"orthogonal with one tilt for all axes; got {shown(phi)}"
        )
    return sum(pairs.values())


def _predict_query(
    phi: RandomFeatureMap, pairs: int, q: Float64, k: Float64, v: Float64
) -> tuple[Float64, Float64, Float64, Float64]:
    """Return bias (e,), variance (e,), sd(Z)/Z () and the tail () for one query and all keys, scaled."""
    exact, m = phi._moments(q, k).mean, len(phi.omega)  # (l,)
    products, third = phi._products(q, k)
    outer = np.outer(exact, exact)
    covariance = (products - outer) / m  # (l, l)
    if pairs:
        covariance = covariance + outer * (_cross_moments(phi, q, k) - 1) * (pairs / m**2)
    z = np.sum(exact)
    ratio = exact @ v / z  # (e,)
    variance_z, with_z = np.maximum(np.sum(covariance), 0.0), np.sum(covariance, axis=1) @ v
    residual = v - ratio  # (l, e)
    variance = np.einsum("je,jl,le->e", residual, covariance, residual) / z**2
    tail = np.abs(third) / m**2 / variance_z / z if variance_z > ROUNDING * z**2 else np.zeros(())
    bias = ratio * variance_z / z**2 - with_z / z**2
    return bias, np.maximum(variance, 0.0), np.asarray(np.sqrt(variance_z) / z), np.asarray(tail)


def _cross_moments(phi: RandomFeatureMap, q: Float64, k: Float64) -> Float64:
    """Return E t t' of two orthogonal frequencies and all pairs of keys, over the product of the means, (l, l)."""
    s = q + phi._sign * k
    gram = s @ s.T
    squares = np.diag(gram)
    if not np.max(squares) <= REACH:
        raise ParameterError(
            f"q and k must be so near that |q' {'+' if phi._sign > 0 else '-'} k'|^2 is up to {REACH:g} in the "
            f"kernel's scale where frequencies are orthogonal; its largest is {np.max(squares):.3g}"
        )
    upper = np.triu_indices(len(k))
    a2, b2 = squares[upper[0]], squares[upper[1]]
    ratios = np.empty_like(gram)
    cross = orthogonal_cross(a2, b2, gram[upper], len(q), phi._sign) * np.exp(-phi._sign * (a2 + b2) / 2)
    ratios[upper] = ratios.T[upper] = cross
    return ratios
