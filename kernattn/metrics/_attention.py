"""How far an attention output is from the exact one, measured and predicted."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace, without_warnings
from kernattn._runtime.deprecated import old_arguments
from kernattn.errors import ShapeError
from kernattn.metrics._check import check_filled, count_redraws, scale_back, scale_down

MOST = 1 / 8  # of sd(Z)/Z and of the tail: where the next order of the expansion adds about a quarter


class DeltaMethod(NamedTuple):
    """Second-order prediction for the ratio N/Z of two means.

    Attributes
    ----------
    bias, variance : array
        Of the ratio, shaped like N.
    relative_sd : array
        sd(Z)/Z, shaped like Z. The expansion means something while this is well below 1.
    tail : array
        ``|E dZ^3| / (Z E dZ^2)``, shaped like Z, the skewness of Z times sd(Z)/Z: about what the next order of the
        expansion adds to the variance, over the variance. Where Z has a long tail this is large while sd(Z)/Z is small,
        and the prediction too large: the tail carries the variance of Z, but the ratio stays among the values.
    """

    bias: Array
    variance: Array
    relative_sd: Array
    tail: Array

    @property
    def trusted(self) -> Array:
        """Whether the second order is enough: neither sd(Z)/Z nor `tail` is above 1/8, shaped like Z."""
        return (self.relative_sd <= MOST) & (self.tail <= MOST)


@old_arguments(out="estimate")
@without_warnings
def attention_mse(estimate: Array, exact: Array) -> Array:
    """Mean squared error of attention outputs over rows and values, mean_{i,c} (estimate_ic - exact_ic)^2, (...).

    Source: the error that Choromanski et al. (2021), figure 4, plot.

    Parameters
    ----------
    estimate, exact : array, which broadcast to (..., n, e)
        Approximate outputs, and those of exact attention.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import attention_mse
    >>> print(attention_mse(np.asarray([[1.0, 2.0]]), np.asarray([[1.0, 4.0]])))
    2.0
    """
    xp = namespace(estimate=estimate, exact=exact)
    check_filled("estimate", estimate)
    check_filled("exact", exact)
    shape, axis = _joint_shape(tuple(estimate.shape), tuple(exact.shape)), (-2, -1)
    (mine, other), octaves = scale_down(xp, xp.broadcast_to(estimate, shape), xp.broadcast_to(exact, shape), axis=axis)
    return scale_back(xp, xp.mean((mine - other) ** 2, axis=axis), 2 * octaves, estimate)


def _joint_shape(estimate: tuple[int, ...], exact: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape (..., n, e) that two shapes broadcast to."""
    try:
        shape = np.broadcast_shapes(estimate, exact)
    except ValueError:
        shape = ()
    if len(shape) < 2:
        raise ShapeError(f"estimate and exact must broadcast to one shape (..., n, e); got {estimate} and {exact}")
    return shape


@without_warnings
def attention_kl(estimate: Array, exact: Array) -> Array:
    """Kullback-Leibler divergence of attention rows, KL_i = sum_j p_ij log(p_ij / q_ij) with 0 log 0 = 0, in nats.

    Source: Kullback and Leibler (1951). It is infinite where an estimated weight is 0 or below and the exact one is
    not: signed feature maps do that.

    Parameters
    ----------
    estimate : array (..., n, l)
        q, rows of approximate weights, summing to 1.
    exact : array (..., n, l)
        p, rows of exact attention weights: not negative, summing to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import attention_kl
    >>> p = np.asarray([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25]])
    >>> print(attention_kl(np.asarray([[0.25, 0.75, 0.0], [1.5, -0.25, -0.25]]), p).round(4))
    [0.1438    inf]
    """
    xp = namespace(estimate=estimate, exact=exact)
    check_filled("estimate", estimate)
    check_filled("exact", exact)
    if exact.ndim < 1 or tuple(exact.shape) != tuple(estimate.shape):
        raise ShapeError(
            f"estimate and exact must have one shape (..., n, l); got {tuple(estimate.shape)} and {tuple(exact.shape)}"
        )
    dtype = estimate.dtype
    estimate, exact = (xp.astype(x, accumulation_dtype(xp, x), copy=False) for x in (estimate, exact))
    seen = exact > 0
    hidden = seen & (estimate <= 0)
    p = xp.where(seen, exact, xp.ones_like(exact))
    q = xp.where(seen & (estimate > 0), estimate, p)
    quotient = p / q
    log = xp.where(xp.isinf(quotient), xp.log(p) - xp.log(q), xp.log(quotient))
    total = xp.sum(xp.where(seen, p * log, xp.zeros_like(p)), axis=-1)
    total = xp.where(xp.any(hidden, axis=-1), xp.full_like(total, xp.inf), total)
    return xp.astype(total, dtype, copy=False)


@without_warnings
def ratio_delta_method(numerators: Array, denominators: Array) -> DeltaMethod:
    """Delta method for N/Z: bias ~ N Var(Z)/Z^3 - Cov(N,Z)/Z^2, variance ~ Var(N - c Z)/Z^2, c = N/Z.

    Source: the second-order Taylor expansion of a ratio (Casella and Berger 2002, section 5.5). Unbiased kernel entries
    give unbiased N and Z, but a biased N/Z. Moments are taken over the redraws.

    Parameters
    ----------
    numerators : array (R, ..., e)
        N of each redraw, R >= 2.
    denominators : array (R, ...)
        Z of each redraw.

    Returns
    -------
    DeltaMethod
        bias and variance (..., e), relative_sd and tail (...): infinite where the mean of Z is 0. A tail that the
        redraws did not reach is not in their moments: `attention_delta_method` knows it.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.metrics import ratio_delta_method
    >>> rng = np.random.default_rng(0)
    >>> z = 1 + 0.1 * rng.standard_normal(100_000)
    >>> prediction = ratio_delta_method(np.ones((100_000, 1)), z)      # E[1/Z] is about 1 + Var(Z)
    >>> print(prediction.bias.round(3), prediction.variance.round(3))
    [0.01] [0.01]
    """
    xp = namespace(numerators=numerators, denominators=denominators)
    count = count_redraws("denominators", denominators)
    count_redraws("numerators", numerators)
    if tuple(numerators.shape[:-1]) != tuple(denominators.shape):
        raise ShapeError(
            f"numerators must be (R, ..., e) for denominators (R, ...); got {tuple(numerators.shape)} "
            f"and {tuple(denominators.shape)}"
        )
    (each_n,), n_octaves = scale_down(xp, numerators, axis=0)
    (each_z,), z_octaves = scale_down(xp, denominators, axis=0)
    n = xp.mean(each_n, axis=0)  # (..., e)
    z = xp.mean(each_z, axis=0)[..., None]  # (..., 1)
    dn = each_n - n
    dz = each_z[..., None] - z
    var_z = xp.sum(dz**2, axis=0) / (count - 1)
    cov = xp.sum(dn * dz, axis=0) / (count - 1)
    ratio = n / z
    residual = dn - ratio * dz
    octaves, none = n_octaves - z_octaves[..., None], z == 0
    bias = xp.where(none, xp.inf, ratio * var_z / z**2 - cov / z**2)
    variance = xp.where(none, xp.inf, xp.sum(residual**2, axis=0) / (count - 1) / z**2)
    relative_sd = xp.where(none, xp.inf, xp.sqrt(var_z) / xp.abs(z))[..., 0]
    third = xp.abs(xp.mean(dz**3, axis=0))
    fixed = var_z == 0
    safe = xp.where(none | fixed, xp.ones_like(z), z) * xp.where(fixed, xp.ones_like(z), var_z)
    tail = xp.where(none, xp.inf, xp.where(fixed, 0.0, third / xp.abs(safe)))[..., 0]
    return DeltaMethod(
        bias=scale_back(xp, bias, octaves, numerators),
        variance=scale_back(xp, variance, 2 * octaves, numerators),
        relative_sd=xp.astype(relative_sd, numerators.dtype, copy=False),
        tail=xp.astype(tail, numerators.dtype, copy=False),
    )
