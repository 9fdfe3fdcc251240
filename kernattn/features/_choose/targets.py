r"""What an error is counted by: the kernel's, or attention's.

A target turns the errors :math:`\delta_{ij} = \phi(q_i)^T \phi(k_j) - k(q_i, k_j)` into one relative squared error. To
first order that is a sum :math:`\sum_{ij} w_{ij} \delta_{ij}^2`: of the kernel exactly so, and of attention with what
the entries of a row have in common left out.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple, final

import numpy as np

from kernattn._arrays.namespaces import Float64, without_warnings
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.lazy import lazy
from kernattn.features._base.map import FeatureMap
from kernattn.features._choose.sample import Sample
from kernattn.kernels import Kernel

ROUNDING = 1e-26  # squared relative error that sums of this size may leave
TINY = 1e-250


class Measured(NamedTuple):
    """The relative squared error of one draw, and for each kind of values that over uniform attention's."""

    error: float
    over_uniform: tuple[float, ...] = ()


class Target(ABC):
    """A kernel and the rows that maps of it are judged on."""

    def __init__(self, kernel: Kernel, sample: Sample) -> None:
        self.kernel, self.sample = kernel, sample

    @property
    @abstractmethod
    def weights(self) -> Float64:
        """What the squared error of each entry of the kernel counts for, (s, t); one for each kind of values."""

    @abstractmethod
    def measure(self, phi: FeatureMap) -> Measured:
        """Return the relative squared error of one draw; infinite where it is not finite."""

    @property
    def uniform(self) -> float | None:
        """The relative squared error of attention to every key alike; None where there is no attention."""
        return None


@final
class KernelTarget(Target):
    r"""Of the kernel: :math:`\sum_{ij} \delta_{ij}^2 / \sum_{ij} k_{ij}^2`.

    Where attention divides the kernel's rows by their sums, these count equally:
    :math:`\frac1s \sum_i (\sum_j \delta_{ij}^2 / \sum_j k_{ij}^2)`.
    """

    @lazy
    def _exact(self) -> tuple[Float64, Float64]:
        """The kernel as values times e^log, log (s, 1)."""
        return self.kernel._log_scaled_matrix(self.sample.queries, self.sample.keys)

    @lazy
    @without_warnings
    def _sizes(self) -> Float64:
        """What the squares of a row's values are divided by, (s, 1)."""
        squares = np.sum(self._exact[0] ** 2, axis=-1, keepdims=True)
        sizes: Float64 = squares * len(squares) if self.kernel.attention_weights else np.sum(squares) + 0 * squares
        return sizes

    @lazy
    @without_warnings
    def weights(self) -> Float64:
        values, log = self._exact
        return (np.exp(-2 * log) / self._sizes + 0 * values)[None]

    @without_warnings
    def measure(self, phi: FeatureMap) -> Measured:
        (values, log), (estimate, unit) = self._exact, _entries(*_features(phi, self.sample))
        return Measured(_clean(np.sum((estimate * np.exp(unit - log) - values) ** 2 / self._sizes)))


@final
class AttentionTarget(Target):
    r"""Of attention: :math:`\sum_i |\hat o_i - o_i|^2 / \sum_i |o_i|^2`, with :math:`o_i = \sum_j A_{ij} v_j`.

    The weights are :math:`A_{ij} = k_{ij} / Z_i`. Without values it is the geometric mean for two kinds of them:
    independent and standard normal, whose expected sums are :math:`\sum_{ij} (\hat A_{ij} - A_{ij})^2` and
    :math:`\sum_{ij} A_{ij}^2`, and the keys themselves, as values are functions of tokens too. The weight of
    :math:`\delta_{ij}^2` is :math:`|v_j - o_i|^2 / Z_i^2`, over the same sum.
    """

    @lazy
    def _kinds(self) -> list[Float64 | None]:
        """The values, (t, e) each, of a size near 1; None for independent ones. Keys that are all 0 tell nothing."""
        values = self.sample.keys if self.sample.values is None else self.sample.values
        top = float(np.max(np.abs(values)))
        kinds: list[Float64 | None] = [np.ldexp(values, -int(np.frexp(top)[1]))] if top > 0 else []
        return [None, *kinds] if self.sample.values is None else kinds

    @lazy
    @without_warnings
    def _exact(self) -> tuple[Float64, Float64]:
        """The weights of attention, (s, t), and the logarithms of the normalisers, (s, 1)."""
        q, k, visible = self.sample.queries, self.sample.keys, self.sample.visible
        if visible is None:
            values, log = self.kernel._log_scaled_matrix(q, k)
            total = np.sum(values, axis=-1, keepdims=True)
            return values / total, log + np.log(total)
        weights, logs = np.zeros(visible.shape), np.zeros((len(q), 1))
        for i, seen in enumerate(visible):
            values, log = self.kernel._log_scaled_matrix(q[i : i + 1], k[seen])
            weights[i, seen], logs[i] = values[0] / np.sum(values), log[0] + np.log(np.sum(values))
        return weights, logs

    def _squares(self, weights: Float64) -> Float64:
        """Return the sum of squares of what these weights make of each kind of values."""
        sums = (weights if v is None else weights @ v for v in self._kinds)
        return np.asarray([np.sum(each**2) for each in sums])

    @lazy
    @without_warnings
    def _of_uniform(self) -> Float64:
        """The squared error of uniform attention for each kind of values; 0 where it is rounding."""
        exact, visible = self._exact[0], self.sample.visible
        seen = np.ones_like(exact) if visible is None else visible
        squares = self._squares(seen / np.sum(seen, axis=-1, keepdims=True) - exact)
        return np.where(squares > ROUNDING * self._sizes, squares, 0.0)

    @lazy
    @without_warnings
    def _sizes(self) -> Float64:
        """The sum of squares of attention's outputs for each kind of values."""
        return self._squares(self._exact[0])

    @lazy
    @without_warnings
    def weights(self) -> Float64:
        exact, log = self._exact
        kinds = []
        for v, size in zip(self._kinds, self._sizes, strict=True):
            if v is None:
                distances = 1 - 2 * exact + np.sum(exact**2, axis=-1, keepdims=True)
            else:
                out = exact @ v
                squares = np.sum(out**2, axis=-1, keepdims=True) + np.sum(v**2, axis=-1)
                distances = np.maximum(squares - 2 * out @ v.T, 0.0)
            kinds.append(distances * np.exp(-2 * log) / size)
        visible = self.sample.visible
        return np.asarray(kinds if visible is None else [np.where(visible, each, 0.0) for each in kinds])

    @lazy
    @without_warnings
    def uniform(self) -> float:
        return geometric_mean(self._of_uniform / self._sizes)

    @without_warnings
    def measure(self, phi: FeatureMap) -> Measured:
        queries, keys = _features(phi, self.sample)
        rows, visible = _entries(queries, keys)[0], self.sample.visible
        if visible is not None:
            rows = np.where(visible, rows, 0.0)
            for i in np.flatnonzero(~(np.sum(np.abs(rows), axis=-1) > TINY)):  # later keys set the units
                rows[i, visible[i]] = _entries(_of(queries, np.asarray([i])), _of(keys, visible[i]))[0]
        squares = self._squares(rows / np.sum(rows, axis=-1, keepdims=True) - self._exact[0])
        over = (_clean(mine / its) for mine, its in zip(squares, self._of_uniform, strict=True) if its > 0)
        return Measured(geometric_mean(squares / self._sizes), tuple(over))


TARGETS: dict[str, type[Target]] = {"kernel": KernelTarget, "attention": AttentionTarget}


def geometric_mean(errors: Float64) -> float:
    """Return the geometric mean of squared errors, each 0 where it is rounding."""
    return float(np.exp(np.mean(np.log([_clean(error) for error in errors]))))


def _clean(error: float | Float64) -> float:
    value = float(error)
    return 0.0 if value < ROUNDING else value if np.isfinite(value) else np.inf


def _features(phi: FeatureMap, sample: Sample) -> tuple[ScaledFeatures, ScaledFeatures]:
    return phi.scaled_query(sample.queries), phi.scaled_key(sample.keys)


def _of(features: ScaledFeatures, rows: np.ndarray) -> ScaledFeatures:
    return ScaledFeatures(*(part[rows] for part in features))


def _entries(queries: ScaledFeatures, keys: ScaledFeatures) -> tuple[Float64, Float64]:
    """Return phi(q).phi(k) as values (s, t) times e^log, log (s, 1), with a unit for every feature and every query."""
    peak = np.max(keys.log_scale, axis=-2)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    logs = queries.log_scale + peak
    unit = np.max(logs, axis=-1, keepdims=True)
    unit = np.where(np.isfinite(unit), unit, 0.0)
    return (queries.values * np.exp(logs - unit)) @ (keys.values * np.exp(keys.log_scale - peak)).T, unit
