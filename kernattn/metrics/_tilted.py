"""Moments that redraws do not reach, by frequencies drawn where they matter."""

from dataclasses import replace

import numpy as np

from kernattn._arrays.namespaces import Array, Float64, without_warnings
from kernattn._runtime.checks import instance_of, positive_integer, shown
from kernattn._runtime.random import RNG, generator
from kernattn.errors import NoClosedForm, ParameterError
from kernattn.features import FeatureMap, Hyperbolic, OptimalPositive, Positive
from kernattn.features._moments.pairs import flat_pairs
from kernattn.metrics._estimates import Interval, mean_and_ci
from kernattn.projections import NORM_LAWS, Iid


@without_warnings
def tilted_moment(
    phi: FeatureMap,
    x: Array,
    y: Array,
    *,
    power: int = 1,
    samples: int = 4096,
    confidence: float = 0.95,
    rng: RNG = None,
) -> Interval:
    r"""Measure :math:`E\,t^p` of a frequency's term by :math:`\omega \sim N(a, I / \lambda)`, weighted to N(0, I).

    Importance sampling by exponential tilting (Siegmund 1976). Where `where_settled` says no, redraws miss the
    tail that carries the mean, p = 1, and the variance, p = 2. A term is in proportion to
    :math:`e^{2A|\omega|^2 + B\omega^T(x + y)}`, so its p-th power times the density of N(0, I) is in proportion to a
    normal density with :math:`\lambda = 1 - 4pA` and :math:`a = pB(x + y)/\lambda`. Samples of that one have weights
    that cancel the term: of positive and of optimal positive features every sample gives the moment itself. The term is
    computed by the map, so this holds the map against its closed forms where no redraw could. A hyperbolic cosine has
    two modes, a and -a: each serves half of the samples.

    Every row of an orthogonal draw is N(0, I), so its mean is this one too, and its variance at p = 2 but for the
    covariances of rows: those need samples of whole blocks around a mode of several rows, which are not drawn here.

    The map is of estimator "positive", "hyperbolic" or "optimal_positive" with normal frequencies, else NoClosedForm is
    raised; x and y are rowwise pairs (..., d), the interval has arrays (...) on the host. A ParameterError is raised
    where the moment is infinite: :math:`4pA \geq 1`.
    """
    instance_of("phi", phi, FeatureMap)
    power, samples = positive_integer("power", power), positive_integer("samples", samples)
    if not isinstance(phi, Positive | Hyperbolic | OptimalPositive) or phi.projection.law() != NORM_LAWS["chi"]:
        raise NoClosedForm(f"no mode is known of the terms of {shown(phi)}: only of exponential maps of norms 'chi'")
    rows, columns = flat_pairs(phi.dim, x, y)
    tilt = phi.tilt if isinstance(phi, OptimalPositive) else 0.0
    stretch, precision, both = np.sqrt(1 - 4 * tilt), 1 - 4 * power * tilt, isinstance(phi, Hyperbolic)
    if precision <= 0:
        raise ParameterError(f"power must be below {1 / (4 * tilt):.3g}: beyond, moments are infinite; got {power!r}")
    normal = generator(rng).standard_normal((samples, rows.shape[1]))
    turned = np.where(np.arange(samples) % 2, 1.0, -1.0)[:, None] if both else 1.0
    values = []
    for one, other in zip(rows, columns, strict=True):
        mode = power * stretch / precision * phi._input_scale * (one + other)
        omega = np.ascontiguousarray(normal / np.sqrt(precision) + turned * mode)
        terms, log_scale = _evaluate_terms(replace(phi, projection=Iid(), omega=omega), one, other, samples)
        values.append(terms**power * np.exp(power * log_scale + _log_weights(omega, mode, precision, both)))
    interval = mean_and_ci(np.stack(values, axis=1), confidence=confidence)
    shape = np.broadcast_shapes(tuple(x.shape), tuple(y.shape))[:-1]
    return Interval(*(np.reshape(part, shape) for part in interval))


def _evaluate_terms(phi: FeatureMap, x: Float64, y: Float64, samples: int) -> tuple[Float64, Float64]:
    """Return the term of every frequency, (samples,), and its log scale apart."""
    q, k = phi.scaled_query(x[None]), phi.scaled_key(y[None])
    values = np.reshape(q.values * k.values * np.ones(phi.num_features_of(len(x))), (-1, samples))
    logs = np.reshape((q.log_scale + k.log_scale) * np.ones(values.size), (-1, samples))
    top = np.max(logs, axis=0)
    return samples * np.sum(values * np.exp(logs - top), axis=0), top


def _log_weights(omega: Float64, mode: Float64, precision: float, both: bool) -> Float64:
    """Return the log density of N(0, I) less that of the samples, N(a, I/precision) or half of it and half at -a."""
    along, half = precision * (omega @ mode), precision * (mode @ mode) / 2
    away = np.logaddexp(along, -along) - np.log(2) if both else along
    narrowed = (precision - 1) / 2 * np.sum(omega**2, axis=-1) - len(mode) / 2 * np.log(precision)
    return np.asarray(half - away + narrowed)
