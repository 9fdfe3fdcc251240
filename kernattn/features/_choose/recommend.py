"""Which map for which data, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from kernattn._array import Array, Float64
from kernattn._check import positive_integer, shown
from kernattn._random import RNG, generator
from kernattn.errors import ParameterError
from kernattn.features._choose.estimator import Request
from kernattn.features._choose.families import check_kernel
from kernattn.features._choose.prediction import pair_weights, predict
from kernattn.features._choose.spectral import candidates
from kernattn.features._choose.table import ESTIMATORS
from kernattn.features._data import check_size, checked, sampled_pairs
from kernattn.features._spectral.spectra import check_spectrum
from kernattn.kernels import Kernel
from kernattn.projections import Projection, resolve

__all__ = ["Choice", "Recommendation", "recommend"]


class Choice(NamedTuple):
    """One row of the table.

    Attributes
    ----------
    estimator : str
        Name of the estimator.
    projection : Projection
        The projection.
    error : float
        Predicted relative error of the kernel: the root of its weighted mean square over the kernel's own.
    reason : str
        What the error comes from; the variances in it are those of one pair at the median.
    """

    estimator: str
    projection: Projection
    error: float
    reason: str


@final
@dataclass(frozen=True)
class Recommendation:
    """What `recommend` found.

    Attributes
    ----------
    choices : tuple of Choice
        The table, best first.
    num_features : int
        Number M of features that it is for.
    sum_squared, difference_squared : float
        Medians of ``|x + y|^2`` and ``|x - y|^2`` over pairs of rows, in the kernel's own scale.
    uniform : float or None
        For the softmax kernel, the error of uniform rows: every row of the kernel matrix replaced by its mean.
    """

    choices: tuple[Choice, ...]
    num_features: int
    sum_squared: float
    difference_squared: float
    uniform: float | None

    @property
    def best(self) -> Choice:
        """The first row."""
        return self.choices[0]

    @property
    def hopeless(self) -> bool:
        """Is no map's predicted error of the kernel below that of uniform rows? Attention's own errors can differ."""
        return self.uniform is not None and not self.best.error < self.uniform

    def __str__(self) -> str:
        """Return the table, and what it means."""
        v2, z2, m = self.sum_squared, self.difference_squared, self.num_features
        width = max(len(repr(choice.projection)) for choice in self.choices)
        lines = [f"{m} features; medians |x + y|^2 = {v2:.3g}, |x - y|^2 = {z2:.3g}"]
        lines.append(f"  {'estimator':<16}  {'projection':<{width}}  {'error':>9}  reason")
        for choice in self.choices:
            row = f"  {choice.estimator:<16}  {choice.projection!r:<{width}}  {choice.error:9.3g}  {choice.reason}"
            lines.append(row)
        if self.uniform is not None:
            lines.append(f"  {'uniform':<16}  {'':<{width}}  {self.uniform:9.3g}  every row of the kernel its mean")
        if self.hopeless:
            lines.append(
                "No map estimates the kernel better than uniform rows do: relative variances of positive features are "
                f"about e^(|x + y|^2) / m = {_exp(v2) / m:.3g} at the median, more for the pairs that matter. "
                "Attention divides by sums of rows, and can err less: measure it."
            )
        return "\n".join(lines)


def recommend(
    kernel: Kernel,
    data: Array | tuple[Array, Array],
    num_features: int,
    projections: Sequence[str | Projection] = ("iid", "orthogonal"),
    rng: RNG = 0,
) -> Recommendation:
    r"""Rank estimators by :math:`(\sum w E(\phi(x)^T \phi(y) - k(x, y))^2 / \sum w\, k(x, y)^2)^{1/2}` over pairs.

    The expectation is variance plus squared bias, in closed form (see `FeatureMap.variance`), over the pairs of up to
    64 rows: nothing is measured. The weights w are 1, but for the softmax kernel, whose rows attention normalises, they
    make the rows count equally and leave out the pairs of a row with itself. ``random_features(..., estimator="auto",
    data=data)`` draws the best one of its projection by the same prediction.

    Parameters
    ----------
    kernel : Kernel
        A kernel that has a spectral measure: Softmax, Gaussian, Matern and others, see `kernattn.random_features`.
    data : (n, d) array or pair of such
        Inputs as they will come, queries and keys together or a tuple of both.
    num_features : int
        Number M of features; where it is odd, estimators that make pairs are left out.
    projections : sequence of str or Projection
        The projections to compare; those that the kernel cannot take are left out.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the draws, left as it was; predictions do not depend on it.

    Returns
    -------
    Recommendation
        The table, frozen; its `str` says why.

    Raises
    ------
    ParameterError
        If the kernel has no spectral measure, or projections is no sequence of which it can take one.
    ShapeError
        If data is not (n, d).

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.random.default_rng(0).standard_normal((50, 8))
    >>> table = ka.features.recommend(ka.kernels.Gaussian(lengthscale=4.0), x, num_features=32)
    >>> table.best.estimator, table.best.projection
    ('trigonometric', Orthogonal(method='qr', norms='chi'))
    >>> ka.features.recommend(ka.kernels.Softmax(), 4 * x, num_features=32).hopeless
    True
    """
    check_kernel(kernel)
    check_spectrum(kernel)
    specs: object = projections
    if not isinstance(specs, list | tuple):
        raise ParameterError(f"projections must be a tuple or list of names or specs; got {shown(specs)}")
    given, number, source = checked(data), positive_integer("num_features", num_features), generator(rng)
    sample, dim = given.rows, given.rows.shape[1]
    check_size(sample, kernel.input_scale(dim))
    x, y = sampled_pairs(sample)
    with np.errstate(over="ignore", invalid="ignore"):
        exact = kernel.pairs(x, y)
        weights = pair_weights(kernel, sample)
        size = np.sum(weights * exact**2)
        mean = np.sum(weights * exact, axis=-1, keepdims=True) / np.sum(weights, axis=-1, keepdims=True)
        uniform = np.sum(weights * (exact - mean) ** 2)
    c = kernel.input_scale(dim)
    v2, z2 = (float(np.median(np.sum((c * s) ** 2, axis=-1))) for s in (x + y, x - y))
    choices, refusal = [], ParameterError(f"projections must hold at least one; got {shown(projections)}")
    for spec in map(resolve, projections):
        try:
            maps = candidates(Request(kernel, dim, number, "auto", spec, given, source))
        except ParameterError as error:
            refusal = error
            continue
        for name, phi in maps.items():
            prediction = predict(phi, sample)
            reason = ESTIMATORS[name].reason(kernel, _exp(v2) / number, _exp(z2) / number)
            reason += prediction.of_iid * "; predicted for iid frequencies"
            choices.append(Choice(name, spec, _relative(prediction.error, size), reason))
    if not choices:
        raise refusal
    baseline = _relative(uniform, size) if kernel.attention_weights else None
    return Recommendation(tuple(sorted(choices, key=lambda choice: choice.error)), number, v2, z2, baseline)


def _exp(value: float) -> float:
    return float(np.exp(min(value, 700.0)))


def _relative(error: float | Float64, size: float | Float64) -> float:
    with np.errstate(invalid="ignore", over="ignore"):
        ratio = float(np.sqrt(error / size))
    return ratio if np.isfinite(ratio) else np.inf
