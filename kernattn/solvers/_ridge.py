"""Ridge regression on features: every penalty from one eigendecomposition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np

from kernattn._arrays.graphs import outside_graphs
from kernattn._arrays.namespaces import Array, Float64, constant, namespace, without_flags
from kernattn._arrays.plain import quiet
from kernattn._runtime.checks import boolean, one_of
from kernattn._runtime.deprecated import old_arguments, old_attribute, read_old, warn_user
from kernattn._runtime.elsewhere import told_keywords
from kernattn._runtime.lazy import lazy
from kernattn.errors import EmptyInputError, ParameterError, ShapeError
from kernattn.features import FeatureMap
from kernattn.solvers._folds import LeftOut, LeftOutRows, add_folds, leave_each_out
from kernattn.solvers._moments import Moments
from kernattn.solvers._spectrum import (
    LEAST,
    Spectrum,
    cast_as,
    check_lowest,
    check_penalties,
    decompose,
    minimise_on_grid,
    project,
)
from kernattn.solvers._targets import OfTargets

GRID, COARSE = 100, 5  # penalties that are tried on folds, and which of them first
NEARBY = np.arange(1 - COARSE, COARSE)
MOST = 2.0  # times the mean's error on folds: the evidence takes what rows that come again share for no noise
TINY = 1e-6  # of the largest eigenvalue: a best penalty of less says that targets have no noise


class RidgePath(NamedTuple):
    """Costs of penalties; a last axis for targets (n, c), none for targets (n,).

    Attributes
    ----------
    penalty : (L,) numpy.ndarray
        The penalties.
    effective_dimension : (L,) numpy.ndarray
        Sum of s / (s + penalty) over the eigenvalues s.
    mse : (L, ...) numpy.ndarray
        Mean squared residual of the rows that were fitted.
    gcv : (L, ...) numpy.ndarray
        Generalised cross-validation's estimate of the mean squared error of new rows.
    log_evidence : (L, ...) numpy.ndarray
        Log density of the targets, at the variance of noise that makes it largest.
    """

    penalty: Float64
    effective_dimension: Float64
    mse: Float64
    gcv: Float64
    log_evidence: Float64

    @property
    def ridge(self) -> Float64:
        """Old name of `penalty`."""
        return read_old(self, "ridge", "penalty")  # type: ignore[no-any-return]


@final
@quiet
@dataclass(frozen=True, eq=False, repr=False)
class Ridge(OfTargets):
    """A fit of ridge regression; what it is asked for beyond `predict` costs no second look at the data.

    Its methods take rows x (..., n, d), and `backend` as `moments` does.

    Attributes
    ----------
    phi : FeatureMap
        The map.
    penalty : (c,) numpy.ndarray
        The penalty of each target.
    """

    phi: FeatureMap
    penalty: Float64
    _spectrum: Spectrum
    _vector: bool

    ridge = old_attribute("ridge", "penalty")

    def __repr__(self) -> str:
        """Return the map and the penalties."""
        return f"Ridge(penalty={self.penalty}, phi={self.phi!r})"

    @lazy
    def _weights(self) -> Float64:
        return self._spectrum.weights(self.penalty)

    @property
    def weights(self) -> Float64:
        """Weights w of the features, (M,) or (M, c)."""
        return self._shape(self._weights)  # type: ignore[no-any-return]

    @property
    def intercept(self) -> Float64:
        """Intercept b, () or (c,): 0 without one."""
        return self._shape(self._spectrum.y_mean - self._spectrum.mean @ self._weights)  # type: ignore[no-any-return]

    @property
    def floor(self) -> float:
        """The least penalty whose answer is not noise: 4 times the rounding of the largest eigenvalue."""
        return self._spectrum.floor

    @old_arguments(ridge="penalty")
    def at(self, penalty: float | Array) -> Ridge:
        """Return the fit of another penalty, a number or one for each target, from the same eigenvectors."""
        return _fit(self, check_penalties(penalty, self.floor))

    @outside_graphs
    def predict(self, x: Array, *, backend: str | None = None) -> Array:
        """Return predictions phi(x)^T w + b, (..., n) or (..., n, c) in the dtype of x."""
        shift = self._spectrum.mean @ self._weights - self._spectrum.y_mean
        return self._shape(cast_as(project(self.phi, x, self._weights, shift, backend), x))

    @outside_graphs
    def leverage(self, x: Array, *, backend: str | None = None) -> Array:
        r"""Return :math:`h(x) = \phi(x)^T (G + \lambda)^{-1} \phi(x)`, and 1 / n of the intercept: (..., n[, c]).

        Over the rows that were fitted, times their weights, it sums to the effective dimension, plus 1 if b was fitted.
        """
        spectrum = self._spectrum
        turned = project(self.phi, x, spectrum.vectors, spectrum.mean @ spectrum.vectors, backend)
        xp = namespace(turned=turned)
        shrunk = constant(xp, 1 / (spectrum.values[:, None] + self.penalty), turned.dtype, turned)
        values = xp.matmul(turned**2, shrunk) + spectrum.share
        return self._shape(cast_as(values, x))

    @old_arguments(ridges="penalties")
    def path(self, penalties: Array | None = None) -> RidgePath:
        """Return the costs of penalties; None takes 200 of them, from where rounding ends to where all is shrunk.

        Parameters
        ----------
        penalties : (L,) array, optional
            Penalties, none below `floor`.
        """
        spectrum = self._spectrum
        values = spectrum.grid() if penalties is None else check_penalties(penalties, spectrum.floor, (1,))
        mse = spectrum.residual(values) / spectrum.count
        costs = (mse, _gcv(spectrum, values), log_evidence_of(spectrum, values))
        return RidgePath(values, spectrum.dimensions(values), *map(self._shape, costs))

    @property
    def effective_dimension(self) -> Float64:
        """Sum of s / (s + penalty) over the eigenvalues s of G, () or (c,)."""
        return self._shape(self._spectrum.dimensions(self.penalty))  # type: ignore[no-any-return]

    @property
    def gcv(self) -> Float64:
        """Generalised cross-validation's estimate of the mean squared error of new rows, () or (c,)."""
        return self._shape(np.diagonal(_gcv(self._spectrum, self.penalty)))  # type: ignore[no-any-return]

    @property
    def log_evidence(self) -> Float64:
        """Log density of the targets, at the variance of noise that makes it largest, () or (c,)."""
        return self._shape(np.diagonal(log_evidence_of(self._spectrum, self.penalty)))  # type: ignore[no-any-return]


@told_keywords
@old_arguments(m="moments", ridge="penalty")
@without_flags
def ridge(
    moments: Moments | Sequence[Moments],
    penalty: float | Array | None = None,
    *,
    objective: str | None = None,
    intercept: bool = True,
    lowest: float = 0.0,
) -> Ridge:
    r"""Fit ridge regression, :math:`w = \mathrm{argmin}\, \sum_i w_i |y_i - \phi(x_i)^T w - b|^2 + \lambda |w|^2`.

    One eigendecomposition, O(M^3), gives every penalty in O(M): the fit, its effective dimension, generalised
    cross-validation (Golub, Heath & Wahba 1979) and the evidence of Bayesian regression. Folds take one more each. An
    intercept is not penalised, and the evidence is then of contrasts: of what it leaves free. With weighted rows the
    evidence lacks :math:`\frac{1}{2} \sum \log w_i`, which no penalty changes.

    Parameters
    ----------
    moments : Moments or sequence of Moments
        Sums over the rows, with targets; or those of folds, two at least, whose sum is fitted.
    penalty : float or (c,) array, optional
        The penalty lambda, on the sum over rows and not on their mean, at least 4 times the rounding of the largest
        eigenvalue. None takes the best by `objective`, for each target its own.
    objective : {None, "folds", "evidence", "gcv"}
        What the choice of a penalty makes best: n / 2 times the logarithm of the error on folds that are left out, that
        of `cross_validate`, less the log evidence, where that error is at most twice the mean's, or that error alone,
        whichever has the larger penalty; the evidence; or generalised cross-validation. None takes folds where moments
        of folds are given, else the evidence. The page on penalties compares them on real tables: generalised
        cross-validation fails most often.
    intercept : bool
        Fit b too; else it is 0.
    lowest : float
        The least penalty that None may take, 0 or more; none is taken below the rounding of eigenvalues.

    Warns
    -----
    UserWarning
        If the best penalty is the least that was looked at, `lowest` or the rounding of eigenvalues. The largest one is
        1,000 times the largest eigenvalue, where the fit is the targets' mean.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-2, 2, (2000, 1))
    >>> y = np.sin(3 * x[:, 0]) + 0.1 * rng.standard_normal(2000)
    >>> phi = ka.random_features(ka.kernels.Gaussian(), dim=1, num_features=64, rng=0)
    >>> fit = ka.solvers.ridge([ka.solvers.moments(x[i::5], phi, y=y[i::5]) for i in range(5)])
    >>> round(float(fit.gcv) ** 0.5, 2)
    0.1
    >>> bool(abs(fit.predict(np.array([[0.5]]))[0] - np.sin(1.5)) < 0.03)
    True
    """
    low = check_lowest(lowest)
    usual = "folds" if isinstance(moments, Sequence) else "evidence"
    objective = one_of("objective", usual if objective is None else objective, ("folds", *OBJECTIVES))
    if penalty is not None:
        return _start(moments, intercept).at(penalty)
    search = Search(moments, objective, intercept)
    fit = search.best(low)
    least = _range(fit._spectrum, low)[0]
    at_least = (fit.penalty <= least * (1 + 1e-9)) & (fit._spectrum.energy > 0)
    if np.any(at_least):
        why = "no more is needed where targets have no noise, or where rows are very many, or fewer than features"
        free = search.best(0.0).penalty if low > fit._spectrum.lowest else fit.penalty
        free = np.ravel(free)[np.ravel(at_least)]
        if np.any(free > TINY * fit._spectrum.values[0]):
            why = f"no less is allowed, and the best is {', '.join(f'{each:.3g}' for each in free[:3])}"
        whose = "folds prefer" if objective == "folds" else f"{objective} prefers"
        warn_user(f"the penalty that {whose} is the least of its range, {least:.3g}: {why}", UserWarning)
    return fit


def choose(moments: Moments | Sequence[Moments], objective: str, intercept: bool, lowest: float) -> Ridge:
    """Return the fit of the best penalties."""
    return Search(moments, objective, intercept).best(lowest)


class Search:
    """The best penalties, of any range from the same eigenvectors."""

    def __init__(self, moments: Moments | Sequence[Moments], objective: str, intercept: bool) -> None:
        if objective == "folds" and isinstance(moments, Moments):
            raise ParameterError(
                "moments must be a sequence of Moments, one for each fold, for objective='folds'; got one Moments"
            )
        self._moments, self._objective, self._intercept = moments, objective, intercept
        self._fit = _start(moments, intercept)
        self._weight = sum(fold.weight for fold in moments) if isinstance(moments, Sequence) else moments.weight

    def best(self, lowest: float) -> Ridge:
        """Return the fit of the best penalties that are not below the lowest."""
        spectrum = self._fit._spectrum
        low, high = _range(spectrum, lowest)
        if self._objective != "folds":
            cost = OBJECTIVES[self._objective]
            return _fit(self._fit, minimise_on_grid(lambda penalties: cost(spectrum, penalties), low, high))
        grid = np.geomspace(low, high, GRID)
        evidence, mse = log_evidence_of(spectrum, grid), np.full((GRID, len(self._fit.penalty)), np.inf)
        wanted = np.zeros(mse.shape, bool)
        wanted[::-COARSE] = True
        for _ in range(2):  # every so many penalties, and for each target all about the best of these
            tried = np.flatnonzero(wanted.any(axis=1))
            sums = np.sum([fold.sum_errors(grid[tried], wanted[tried]) for fold in self._left], axis=0)
            mse[wanted] = (sums / self._weight)[wanted[tried]]
            score = spectrum.rows / 2 * np.log(np.maximum(mse, LEAST)) - evidence
            score[mse > MOST * mse[-1]] = np.inf
            best = np.argmin(score, axis=0), np.argmin(mse, axis=0)
            wanted = np.zeros(mse.shape, bool)
            for each in best:
                np.put_along_axis(wanted, np.clip(each + NEARBY[:, None], 0, GRID - 1), True, axis=0)
            wanted &= np.isinf(mse)
        return _fit(self._fit, grid[np.maximum(*best)])

    @lazy
    def _left(self) -> Sequence[LeftOut | LeftOutRows]:
        assert isinstance(self._moments, Sequence)
        return leave_each_out(self._moments, self._intercept)


def mean_fit(moments: Moments) -> Ridge:
    """Return the fit of rows that are all the same: the targets' mean, by a penalty that leaves no rounding."""
    spectrum = decompose(moments, True, varies=False)
    penalty = max(spectrum.ceiling, float(np.trace(moments.gram)))
    return Ridge(moments.phi, np.full(len(moments._targets.total), penalty), spectrum, moments.vector)


def _start(moments: Moments | Sequence[Moments], intercept: bool) -> Ridge:
    """Return a fit, of the least penalty."""
    total = add_folds(moments) if isinstance(moments, Sequence) else moments
    spectrum = decompose(total, boolean("intercept", intercept), by_rows=True)
    if not len(total._targets.total):
        raise EmptyInputError("moments must hold targets; they were made without y")
    return Ridge(total.phi, np.full(len(total._targets.total), spectrum.floor), spectrum, total.vector)


def _range(spectrum: Spectrum, lowest: float) -> tuple[float, float]:
    """Return the least and the largest penalty that are looked at."""
    return max(spectrum.lowest, lowest), max(spectrum.ceiling, lowest)


def _fit(fit: Ridge, penalties: Float64) -> Ridge:
    """Return the fit with other penalties: one number, or one for each target."""
    if penalties.ndim and penalties.shape != fit.penalty.shape:
        wanted = f"one number or one for each of {len(fit.penalty)} targets"
        raise ShapeError(f"penalty must be {wanted}; got {penalties.shape}")
    return replace(fit, penalty=np.array(np.broadcast_to(penalties, fit.penalty.shape)))


def _gcv(spectrum: Spectrum, penalties: Float64) -> Float64:
    """Return n |y - H y|^2 / (n - tr H)^2, (L, c)."""
    left = np.maximum(spectrum.rows - spectrum.dimensions(penalties), np.finfo(float).eps * spectrum.rows)
    with np.errstate(over="ignore", under="ignore"):  # of huge targets: no penalty that gives infinity is the best
        score: Float64 = (spectrum.count / left)[:, None] * (spectrum.residual(penalties) / left[:, None])
    return score


def log_evidence_of(spectrum: Spectrum, penalties: Float64) -> Float64:
    """Return the log evidence at the variance of noise that makes it largest, (L, c)."""
    n = spectrum.rows
    variances = np.maximum(spectrum.quadratic(penalties) / n, np.finfo(float).tiny)
    return spectrum.log_evidence(penalties, variances, n)


OBJECTIVES: dict[str, Callable[[Spectrum, Float64], Float64]] = {
    "gcv": _gcv,
    "evidence": lambda spectrum, penalties: -log_evidence_of(spectrum, penalties),
}
