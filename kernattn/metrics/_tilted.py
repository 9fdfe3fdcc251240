"""Moments that redraws do not reach, by frequencies drawn where they matter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kernattn._array import Array, Float64
from kernattn._check import instance_of, positive_integer, shown
from kernattn._random import RNG, generator
from kernattn.errors import NoClosedForm
from kernattn.features import FeatureMap, Hyperbolic, OptimalPositive, Positive
from kernattn.features._moments.pairs import beyond, flat_pairs
from kernattn.metrics._estimates import Interval, mean_and_ci
from kernattn.projections import NORM_LAWS, Iid

__all__ = ["tilted_moment"]


@beyond
def tilted_moment(
    phi: FeatureMap, x: Array, y: Array, *, power: int = 1, samples: int = 4096, confidence: float = 0.95, rng: RNG = 0
) -> Interval:
    r"""Measure :math:`E\,t^p` of a frequency's term by :math:`E f(\omega) = E f(\omega + a) e^{-a^T\omega - |a|^2/2}`.

    Importance sampling by exponential tilting (Siegmund 1976), :math:`\omega \sim N(0, I)`. Where `settled` says no,
    redraws miss the tail that carries the mean, p = 1, and the variance, p = 2; frequencies around the mode
    :math:`a = p B (x + y) / (1 - 4pA)` of the p-th power of a term do not. The term is computed by the map itself, so
    this holds the map against its closed forms where no redraw could. A hyperbolic cosine has two modes, a and -a: each
    serves half of the samples.

    Every row of an orthogonal draw is N(0, I), so its mean is this one too, and its variance at p = 2 but for the
    covariances of rows: those need samples of whole blocks around a mode of several rows, which are not drawn here.

    Parameters
    ----------
    phi : FeatureMap
        A map of estimator "positive", "hyperbolic" or "optimal_positive" with normal frequencies.
    x, y : array (..., d)
        Rowwise pairs, not so far from 0 that features leave float64.
    power : int
        The power p.
    samples : int
        Number of frequencies for each pair, at least 2.
    confidence : float
        Probability of the interval, in (0, 1).
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the frequencies.

    Returns
    -------
    Interval
        NumPy arrays (...) on the host.

    Raises
    ------
    NoClosedForm
        If the map is none of these, so that no mode is known.
    ShapeError
        If the rows do not have the map's dimension, or do not broadcast, or there are fewer than two samples.
    EmptyInputError
        An axis of length 0.
    DTypeError, MixedLibraryError
        Not arrays of real floating dtype, or not of one library; phi is no feature map.
    ParameterError
        If a number is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.array([[2.0, 0.0]])  # |x + y|^2 = 16: no number of redraws that anybody can afford reaches it
    >>> phi = ka.random_features(ka.kernels.Softmax(1.0), 2, 64, "positive", "iid")
    >>> print(ka.metrics.tilted_moment(phi, x, x).value / np.exp(4.0))
    [1.]
    """
    instance_of("phi", phi, FeatureMap)
    power, samples = positive_integer("power", power), positive_integer("samples", samples)
    if not isinstance(phi, Positive | Hyperbolic | OptimalPositive) or phi.projection.law() != NORM_LAWS["chi"]:
        raise NoClosedForm(f"no mode is known of the terms of {shown(phi)}: only of exponential maps of norms 'chi'")
    rows, columns = flat_pairs(phi.dim, x, y)
    tilt = phi.tilt if isinstance(phi, OptimalPositive) else 0.0
    stretch, omega = np.sqrt(1 - 4 * tilt), generator(rng).standard_normal((samples, rows.shape[1]))
    turned = np.where(np.arange(samples) % 2, 1.0, -1.0)[:, None] if isinstance(phi, Hyperbolic) else 1.0
    terms = []
    for one, other in zip(rows, columns, strict=True):
        mode = power * stretch / (1 - 4 * power * tilt) * phi._input_scale * (one + other)
        shifted = np.ascontiguousarray(omega + turned * mode)
        drawn = replace(phi, projection=Iid(), omega=shifted)
        terms.append(
            _term(drawn, one, other, samples) ** power * _weights(shifted @ mode, mode, isinstance(phi, Hyperbolic))
        )
    found = mean_and_ci(np.stack(terms, axis=1), confidence)
    shape = np.broadcast_shapes(tuple(x.shape), tuple(y.shape))[:-1]
    return Interval(*(np.reshape(part, shape) for part in found))


def _term(phi: FeatureMap, x: Float64, y: Float64, samples: int) -> Float64:
    """Return the term of every frequency, (samples,)."""
    q, k = phi.scaled_query(x[None]), phi.scaled_key(y[None])
    products = q.values * k.values * np.exp(q.log_scale + k.log_scale) * samples
    return np.asarray(np.sum(np.reshape(products, (-1, samples)), axis=0))


def _weights(along: Float64, mode: Float64, both: bool) -> Float64:
    """Return the density of N(0, I) over that of the samples, N(a, I) or half of it and half of N(-a, I)."""
    half = mode @ mode / 2
    return np.asarray(np.exp(half) / np.cosh(along) if both else np.exp(half - along))
