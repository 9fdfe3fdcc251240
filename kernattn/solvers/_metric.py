"""A metric of rows that targets choose: recursive feature machines, on landmarks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np

from kernattn._arrays.csr import is_sparse
from kernattn._arrays.namespaces import Array, Float64, constant, frozen, namespace, to_numpy64, without_flags
from kernattn._arrays.shapes import strips
from kernattn._arrays.units import in_units, unit_of
from kernattn._runtime.checks import MODERATE, one_of, positive_integer, positive_number, shown
from kernattn.errors import DTypeError, KernattnError, ParameterError
from kernattn.features import nystrom
from kernattn.features._spectral.spectra import is_by_axes
from kernattn.kernels import Gaussian, Stationary, usual_lengthscale
from kernattn.kernels._pullbacks import PULLBACKS, pull
from kernattn.solvers._check import check_beside, check_finite, refuse
from kernattn.solvers._digests import digests_of, distinct
from kernattn.solvers._ridge import Ridge, choose
from kernattn.solvers._rows import check_and_copy
from kernattn.solvers._spectrum import BLOCK
from kernattn.solvers._sums import moments

FORMS = "best", "diagonal", "full"
MARGINS = {"diagonal": 1.5, "full": 2.0}  # standard errors by which a form is better than a simpler one
CLEAR = 0.1  # of an error: what is below it is better, whatever the margin
FOLDS = 3
LOWEST = 1e-5  # of the features' mean squared norm: the least penalty
WIDE = 256  # columns, beyond which "best" leaves out full metrics, for each of which there is an eigendecomposition
ENOUGH = 10  # rows for each number of a full metric: of fewer, it learns rows by heart
FEW = 25  # rows that differ, below which folds tell nothing
LEAST = 256  # rows whose gradients are taken, where several targets share them
SAME, ULPS = 1e-8, 8  # of the targets' range, and units in their last place: a deviation of less is rounding


@final
@dataclass(frozen=True, eq=False, repr=False)
class Metric:
    r"""A metric :math:`M = A A^T`: rows are as far apart as the rows x A are.

    Attributes
    ----------
    factor : (d, d) numpy.ndarray
        The matrix A, symmetric, in units that leave the usual lengthscale of the rows as it is. It is the identity
        where no metric was better.
    form : {"none", "diagonal", "full"}
        What the metric is.
    rounds : int
        How many times it was made anew.
    lengthscale : float
        The best of the lengthscales, of the kernel of rows x A.
    errors : dict of (rounds + 1,) numpy.ndarray
        Mean squared error on rows left out, of targets of variance 1, at the best lengthscale: by form, and by round
        from no metric on.
    """

    factor: Float64
    form: str
    rounds: int
    lengthscale: float
    errors: dict[str, Float64]

    def __repr__(self) -> str:
        """Return what the metric is."""
        d = len(self.factor)
        return f"Metric({self.form}, rounds={self.rounds}, lengthscale={self.lengthscale:.6g}, factor=({d}, {d}))"

    @property
    def matrix(self) -> Float64:
        """The metric M, (d, d)."""
        return self.factor @ self.factor.T

    def transform(self, x: Array) -> Array:
        """Return the rows x A of rows (..., n, d), in their dtype."""
        xp = namespace(x=x)
        return xp.matmul(x, constant(xp, self.factor, x.dtype, x))


@without_flags
def learn_metric(
    x: Array,
    y: Array,
    kernel: Stationary | None = None,
    *,
    form: str = "best",
    weights: Array | None = None,
    times: tuple[float, ...] = (1.0, 2.0, 4.0),
    rounds: int = 5,
    num_landmarks: int = 128,
    rows: int = 2048,
) -> Metric:
    r"""Learn a metric of rows, :math:`M = \frac{1}{n} \sum_i \nabla f(x_i) \nabla f(x_i)^T`, f a fit in the last one.

    Recursive feature machines, Radhakrishnan, Beaglehole, Pandit and Belkin (2024): directions in which the fit does
    not change count for nothing, and the next fit has more digits for the others. The first is in no metric. Each is
    ridge regression on landmarks of :math:`k(x A, y A)`, :math:`A = M^{1/2}`, with the penalty of the largest evidence;
    a diagonal metric is the diagonal of M, a lengthscale of each axis. Several targets add their gradients up.

    Form, number of rounds and lengthscale are those of the least squared error on three folds, each predicted by
    metrics and fits that have not seen it. A diagonal metric is taken only where it is better than none by one and a
    half standard errors of the difference, and a full one, of d (d + 1) / 2 numbers, where it is better than both by
    two; or where it leaves less than a tenth of the error. It is then learnt anew from all rows. Rows are folded and
    landmarks taken by a digest, so that neither order nor copies have a part in it.

    Parameters
    ----------
    x : (n, d) array
        Rows, dense; they are taken in float64 on the host.
    y : (n,) or (n, c) array
        Targets; each is divided by its deviation, and those that are the same in all rows count for nothing. Classes
        are a column of 0 and 1 each.
    kernel : Stationary, optional
        A kernel with one lengthscale and a pullback: Gaussian, Matern, RationalQuadratic, or a product over axes, such
        as Laplacian, which has diagonal metrics only. None is the Gaussian one with the usual lengthscale.
    form : {"best", "diagonal", "full"}
        Which metrics are tried. "best" tries diagonal ones, and full ones of 256 columns at most, where there are ten
        rows for each of their numbers: of fewer, a metric learns rows by heart.
    weights : (n,) array, optional
        How often each row counts.
    times : tuple of float
        The lengthscales that are tried, in units of the kernel's own.
    rounds : int
        The most rounds.
    num_landmarks : int
        Number of landmarks.
    rows : int
        How many rows that differ are looked at, at most.

    Returns
    -------
    Metric
        The metric; ``Transformed(phi, metric.factor)`` is a map in it, of a map `phi` of rows ``metric.transform(x)``.

    Raises
    ------
    ParameterError
        If the kernel is none of those, or a number is out of range.
    DTypeError
        If rows are sparse.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.random.default_rng(0).standard_normal((800, 5))
    >>> y = np.sin(2 * x[:, 0] - 2 * x[:, 1])
    >>> metric = ka.solvers.learn_metric(x, y, num_landmarks=64)
    >>> direction = np.linalg.eigh(metric.matrix)[1][:, -1]
    >>> bool(abs(direction @ [1, -1, 0, 0, 0]) / 2**0.5 > 0.99)
    True
    """
    if is_sparse(x):
        raise DTypeError(f"x must be dense rows; got {shown(x)}: make fewer columns of them, by TruncatedSVD")
    one_of("form", form, FORMS)
    _check_kernel(kernel, form)
    counts = (positive_integer("rounds", rounds), positive_integer("num_landmarks", num_landmarks))
    given: object = times
    if not isinstance(given, tuple | list) or not given:
        raise ParameterError(f"times must be a tuple of numbers, one at least; got {shown(times)}")
    factors = [positive_number("times", each) for each in times]
    whole = _merge(*check_and_copy(x, y), _check_weights(weights, x), positive_integer("rows", rows))
    kernel = Gaussian(_usual(whole.x)) if kernel is None else kernel
    forms = _forms(kernel, *whole.x.shape) if form == "best" else (form,)
    own = float(kernel.lengthscale)  # type: ignore[arg-type]
    kernels = [replace(kernel, lengthscale=min(own * by, MODERATE[1])) for by in factors]  # type: ignore[type-var]
    return _best(whole, kernels, forms, *counts)


def _forms(kernel: Stationary, n: int, d: int) -> tuple[str, ...]:
    """Return the forms of metrics that n rows of d columns can tell."""
    full = not is_by_axes(kernel) and d <= WIDE and n >= ENOUGH * d * (d + 1) / 2
    return ("diagonal", "full") if full else ("diagonal",)


class Sample(NamedTuple):
    """Rows that differ, in an order of their own, the means of their targets, and what each counts."""

    x: Float64  # (n, d)
    y: Float64  # (n, c), of variance 1
    weights: Float64  # (n,)

    def part(self, which: Float64) -> Sample:
        """Return some of the rows."""
        return Sample(*(each[which] for each in self))


class Step(NamedTuple):
    """A fit in a metric, which is A A^T."""

    factor: Float64
    fit: Ridge

    def predict(self, x: Float64) -> Float64:
        return np.asarray(self.fit.predict(x @ self.factor))


def gradient_product(fit: Ridge, x: Float64, weights: Float64) -> Float64:
    r"""Return :math:`\sum_i w_i \nabla f(x_i) \nabla f(x_i)^T / \sum_i w_i`, summed over targets, (d, d), of rows x."""
    phi, total = fit.phi, np.zeros((x.shape[1],) * 2)
    kernel, landmarks = phi.kernel, phi.landmarks  # type: ignore[attr-defined]
    root, log = phi._root("float64")  # type: ignore[attr-defined]
    toward = (root * np.exp(log)) @ np.reshape(fit.weights, (len(root), -1))  # of kernel values
    for here in strips(len(x), BLOCK // len(root)):
        for each in toward.T:
            g = np.broadcast_to(each, (len(x[here]), len(each)))
            slopes = pull(kernel, x[here], landmarks, g)[0]
            total += (slopes * weights[here, None]).T @ slopes
    return total / np.sum(weights)


def follow(sample: Sample, kernel: Stationary, form: str, rounds: int, landmarks: int) -> Iterator[Step]:
    """Yield the fit without a metric, and one in each metric that follows from the last."""
    factor, usual = np.eye(sample.x.shape[1]), usual_lengthscale(sample.x)
    for i in range(rounds + 1):
        z = sample.x if i == 0 else sample.x @ factor
        phi = nystrom(z, kernel, landmarks=z[:landmarks])
        sums = moments(z, phi, y=sample.y, weights=sample.weights)
        fit = choose(sums, "evidence", True, LOWEST * float(np.trace(sums.gram)) / sums.weight)
        yield Step(factor, fit)
        if i == rounds:
            return
        some = slice(max(LEAST, len(z) // sample.y.shape[1]))
        product = factor @ gradient_product(fit, z[some], sample.weights[some]) @ factor.T
        factor = _root(product, form)
        scale = usual_lengthscale(sample.x @ factor) if np.isfinite(factor).all() else 0.0
        if not 0 < scale < np.inf:  # a fit that does not change anywhere
            return
        factor = factor * (usual / scale)


def _root(product: Float64, form: str) -> Float64:
    """Return the root of a metric, or of its diagonal."""
    if form == "diagonal":
        return np.diag(np.sqrt(np.diagonal(product)))
    values, vectors = np.linalg.eigh(product)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def _best(sample: Sample, kernels: list[Stationary], forms: tuple[str, ...], rounds: int, landmarks: int) -> Metric:
    """Return the metric that folds prefer, or none."""
    none = Metric(frozen(np.eye(sample.x.shape[1])), "none", 0, kernels[0].lengthscale, {})  # type: ignore[arg-type]
    if len(sample.x) < FEW or not sample.y.shape[1]:
        return none
    errors = _left_out(sample, kernels, forms, rounds, landmarks)
    shares = sample.weights / np.sum(sample.weights)
    means = errors @ shares / sample.y.shape[1]  # (forms, kernels, rounds + 1)
    told = {form: frozen(of_form.min(axis=0)) for form, of_form in zip(forms, means, strict=True)}
    chosen: tuple[int, ...] = 0, int(np.argmin(means[0, :, 0])), 0
    for j, (form, of_form) in enumerate(zip(forms, means, strict=True)):
        best = (j, *(int(each) for each in np.unravel_index(np.argmin(of_form), of_form.shape)))
        chosen = best if _is_better(errors[best], errors[chosen], shares, MARGINS[form]) else chosen
    j, i, count = chosen
    found = replace(none, lengthscale=kernels[i].lengthscale, errors=told)  # type: ignore[arg-type]
    if not count:
        return found
    *_, last = follow(sample, kernels[i], forms[j], count, landmarks)
    return replace(found, factor=frozen(last.factor), form=forms[j], rounds=count)


def _left_out(
    sample: Sample, kernels: list[Stationary], forms: tuple[str, ...], rounds: int, landmarks: int
) -> Float64:
    """Return squared errors of rows of folds left out, (forms, kernels, rounds + 1, n); infinity of what has no fit."""
    errors = np.full((len(forms), len(kernels), rounds + 1, len(sample.x)), np.inf)
    folds = digests_of(sample.x) % np.uint64(FOLDS)
    for fold in np.unique(folds):
        out = folds == fold
        kept, left = sample.part(~out), sample.part(out)
        for j, form in enumerate(forms):
            for i, kernel in enumerate(kernels):
                try:
                    for k, step in enumerate(follow(kept, kernel, form, rounds, landmarks)):
                        errors[j, i, k, out] = np.sum((step.predict(left.x) - left.y) ** 2, axis=1)
                except KernattnError:  # features of a kernel that are 0, or targets that do not differ
                    continue
    return errors


def _is_better(errors: Float64, others: Float64, shares: Float64, margin: float) -> bool:
    """Say whether errors are less than others by more than so many standard errors of the mean difference.

    So are those of a tenth: where a few rows make up the others' error, its standard error is as large.
    """
    if not np.isfinite(errors).all():
        return False
    gain = others - errors
    mean = float(gain @ shares)
    return float(errors @ shares) < CLEAR * float(others @ shares) or mean > margin * float(
        np.sqrt(np.sum((shares * (gain - mean)) ** 2))
    )


def _merge(x: Float64, y: Float64, weights: Float64, most: int) -> Sample:
    """Return rows that differ, in the order of a digest, with the means of their targets."""
    counted = weights > 0
    x, weights = x[counted], weights[counted]
    size = np.abs(y[counted]).max(axis=0)
    y = y[counted] / np.where(size > 0, size, 1.0)  # whose squares are floats
    first, which = distinct(x)
    first = first[:most]
    counts = np.bincount(which, weights)[: len(first)].astype(np.float64)
    least = y.min(axis=0)  # off which a large mean has no digits to lose
    sums = np.stack([np.bincount(which, weights * each)[: len(first)] for each in (y - least).T], axis=1)
    targets = sums / counts[:, None]
    centre = np.average(targets, axis=0, weights=counts)
    deviation = np.sqrt(np.average((targets - centre) ** 2, axis=0, weights=counts))
    differs = deviation > SAME * targets.max(axis=0) + ULPS * np.finfo(float).eps * np.abs(least)
    rounded = ((targets - centre)[:, differs] / deviation[differs]).astype(np.float32)  # sums in another order differ
    return Sample(x[first], rounded.astype(np.float64), counts)


def _check_weights(weights: Array | None, x: Array) -> Float64:
    if weights is None:
        return np.ones(x.shape[0])
    check_beside("weights", weights, x.shape[0], False)
    check_finite("weights", weights)
    values = to_numpy64(weights)
    if np.min(values) < 0:
        refuse("weights must be 0 or more", np.flatnonzero(values < 0), "below 0")
    if not values.any():
        raise ParameterError("weights must not be 0 in all rows")
    return in_units(values, unit_of(values))


def _check_kernel(kernel: Stationary | None, form: str) -> None:
    if kernel is None:
        return
    if type(kernel) not in PULLBACKS or not isinstance(kernel, Stationary):
        known = ", ".join(cls.__name__ for cls in PULLBACKS if issubclass(cls, Stationary))
        raise ParameterError(f"kernel must be one of {known} for a metric; got {shown(kernel)}")
    if not isinstance(kernel.lengthscale, float):
        raise ParameterError(f"kernel must have one lengthscale, as the metric has those of axes; got {shown(kernel)}")
    if form == "full" and is_by_axes(kernel):
        raise ParameterError(f"form must be 'diagonal' for {shown(kernel)}, a product over axes; got 'full'")


def _usual(x: Float64) -> float:
    low, high = MODERATE
    return float(np.clip(usual_lengthscale(x), low, high))
