"""Lengthscales by the evidence or by cross-validation, for one draw of a map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from kernattn._arrays.csr import is_sparse
from kernattn._arrays.namespaces import Array, Float64, frozen, to_numpy64, without_flags
from kernattn._arrays.shapes import strips
from kernattn._runtime.checks import MODERATE, boolean, one_of, positive_integer, shown
from kernattn._runtime.deprecated import old_order, warn_user
from kernattn._runtime.extras import bar
from kernattn._runtime.lazy_scipy import optimize
from kernattn._runtime.random import RNG, generator
from kernattn.errors import DTypeError, ParameterError
from kernattn.features import FeatureMap, Hilbert, Nystrom, RandomFeatureMap
from kernattn.features._lengthscales import with_lengthscales
from kernattn.kernels import Stationary
from kernattn.kernels._stationary import Lengthscale
from kernattn.solvers._gp import gp
from kernattn.solvers._gp_evidence import sum_inverses
from kernattn.solvers._gp_functions import features_and_pull
from kernattn.solvers._moments import Moments
from kernattn.solvers._ridge import choose
from kernattn.solvers._spectrum import BLOCK
from kernattn.solvers._sums import check_rows, moments

REACH = 1e3  # a lengthscale is looked for up to so many times the first, and down to as small a part
NEAR = 1e-4  # a logarithm that is so near to a bound is at it
LOST = 10.0  # what lengthscales at which features leave their dtype cost more than the best, per row
ENOUGH = 1e-8  # of the cost per row: less than that is no gain


@final
@dataclass(frozen=True, eq=False, repr=False)
class Tuned:
    """The best lengthscales of a search, and the map of the same draw that has them.

    Attributes
    ----------
    phi : FeatureMap
        The map, for `moments`, `gp` and `ridge`.
    objective : {"evidence", "gcv"}
        What was made best.
    before, after : float
        The objective at the first lengthscales and at the best. The evidence is the sum over targets of the largest
        log evidence, the score of cross-validation the geometric mean over targets of the least.
    trace : (e,) numpy.ndarray
        The objective of every evaluation but those whose features left their dtype.
    converged : bool
        Whether the search came to an end by itself, and not at a bound; an axis of its own may end at its most.
    """

    phi: FeatureMap
    objective: str
    before: float
    after: float
    trace: Float64
    converged: bool

    def __repr__(self) -> str:
        """Return the objective before and after, and the kernel."""
        return f"Tuned({self.objective}: {self.before:.6g} -> {self.after:.6g}, kernel={self.kernel!r})"

    @property
    def kernel(self) -> Stationary:
        """The kernel with the best lengthscales."""
        return self.phi.kernel  # type: ignore[attr-defined, no-any-return]

    @property
    def lengthscale(self) -> Lengthscale:
        """The best lengthscales."""
        return self.kernel.lengthscale

    @property
    def evaluations(self) -> int:
        """Number of evaluations."""
        return len(self.trace)


@old_order(FeatureMap, "phi")
@without_flags
def tune(
    x: Array,
    y: Array,
    phi: FeatureMap,
    *,
    objective: str = "evidence",
    ard: bool = False,
    rows: int | None = None,
    rng: RNG = None,
    max_iterations: int = 100,
    progress: bool | None = False,
) -> Tuned:
    r"""Return lengthscales, :math:`\mathrm{argmax}_\ell \max_{\sigma, a} \log N(y; 0, a^2 \Phi \Phi^T + \sigma^2 I)`.

    Rasmussen & Williams (2006), section 5.4; one lengthscale an axis is automatic relevance determination. The draw is
    kept: features have the frequencies, the landmarks or the box of the map, so that the objective is a smooth
    function. Noise and amplitude are those of `gp` at every step, or the penalty is that of `ridge`. With :math:`L` the
    objective, derivatives of features follow from :math:`\partial L / \partial G` and
    :math:`\partial L / \partial B` in a second pass over the rows, by the pullback of the map: an evaluation costs
    O(n M (d + M)) whatever the number of lengthscales, and memory is O(n d + M^2). The search is L-BFGS-B on
    logarithms; it finds a local optimum, and the best lengthscales that were seen are never worse than the first. They
    are between a thousandth and 1,000 times the first.

    Parameters
    ----------
    x : (n, d) array
        Rows; they are taken in float64 on the host.
    y : (n,) or (n, c) array
        Targets, which must differ. The evidence is of a process with the mean 0: subtract theirs.
    phi : FeatureMap
        Random features, a Nystrom map or a Hilbert basis of a kernel with a lengthscale, from which the search begins.
    objective : {"evidence", "gcv"}
        The evidence, or the score of generalised cross-validation, with an intercept.
    ard : bool
        A lengthscale for each axis; else a factor common to all.
    rows : int, optional
        Number of rows that are drawn for the search; None takes all.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Which rows.
    max_iterations : int
        Maximum number of iterations of the search.
    progress : bool or None
        Show the objective on stderr; None shows it on a terminal only.

    Warns
    -----
    UserWarning
        If the search ends at a bound: begin another from there. With `ard` an axis that tells nothing ends at its most.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-2, 2, (500, 2))
    >>> y = np.sin(3 * x[:, 0]) + 0.1 * rng.standard_normal(500)
    >>> phi = ka.random_features(ka.kernels.Gaussian(), dim=2, num_features=64, rng=0)
    >>> tuned = ka.solvers.tune(x, y, phi, ard=True)
    >>> bool(tuned.lengthscale[0] < 1.5 < 10 < tuned.lengthscale[1])
    True
    >>> process = ka.solvers.gp(ka.solvers.moments(x, tuned.phi, y=y))
    >>> bool(np.isclose(process.log_evidence, tuned.after))
    True
    """
    _check_map(phi)
    if is_sparse(x):
        raise DTypeError(f"x must be dense rows; got {shown(x)}")
    given = check_rows(phi, x, y, None, "float64", None)
    one_of("objective", objective, OBJECTIVES)
    boolean("ard", ard)
    positive_integer("max_iterations", max_iterations)
    count, source = len(given.y), generator(rng)
    if rows is not None and positive_integer("rows", rows) > count:
        raise ParameterError(f"rows must be {count} at most, the number of rows of x; got {rows}")
    chosen = slice(None) if rows is None else np.sort(source.choice(count, rows, replace=False))
    if not np.ptp(given.y[chosen], axis=0).all():
        raise ParameterError(f"y must not be the same in all of {len(given.y[chosen])} rows")
    targets = given.y[chosen]
    if objective == "gcv":  # has an intercept: targets far from 0 round in its slopes
        targets = targets - targets.mean(axis=0)
    search = Search(phi, to_numpy64(x)[chosen], targets, OBJECTIVES[objective])
    return search_lengthscales(search, objective, ard, max_iterations, progress)


class Slopes(NamedTuple):
    """A cost, and its derivatives by the moments."""

    cost: float
    gram: Float64  # (M, M)
    cross: Float64  # (M, c)
    s: Float64  # (M,)


def differentiate_evidence(m: Moments) -> Slopes:
    """Return minus the log evidence per row, and its slopes; at the best noise and amplitude those by these are 0."""
    process = gp(m)
    spectrum, at, variance = process._spectrum, process._penalties, process.noise**2
    weights = spectrum.weights(at)
    gram = sum_inverses(m.gram, spectrum, at, np.ones_like(at)) + (weights / variance) @ weights.T
    cost = -float(np.sum(process.log_evidence)) / m.n
    return Slopes(cost, gram / (2 * m.n), -weights / (variance * m.n), np.zeros(len(gram)))


def differentiate_gcv(m: Moments) -> Slopes:
    """Return the mean log score over targets, and its slopes; at the best penalty that by the penalty is 0."""
    fit = choose(m, "gcv", True, 0.0)
    spectrum, at = fit._spectrum, fit.penalty
    shrunk = 1 / (spectrum.values[:, None] + at)
    held = spectrum.coordinates * shrunk
    weights, again = (spectrum.vectors @ each for each in (held, held * shrunk))
    residual, left = np.diagonal(spectrum.residual(at)), spectrum.rows - spectrum.dimensions(at)
    c = len(at)
    mixed = (at / residual * again) @ weights.T
    gram = (weights / residual) @ weights.T + mixed + mixed.T
    gram = (gram + (spectrum.vectors * np.sum(2 * at * shrunk / left * shrunk, axis=1)) @ spectrum.vectors.T) / c
    cross = -2 * (weights + at * again) / (residual * c)
    cost = float(np.mean(np.log(fit.gcv)))
    return Slopes(cost, gram, cross, -2 * gram @ spectrum.mean - cross @ spectrum.y_mean)


OBJECTIVES: dict[str, Callable[[Moments], Slopes]] = {"evidence": differentiate_evidence, "gcv": differentiate_gcv}


class Search(NamedTuple):
    """A cost as a function of the logarithms of lengthscales over the first."""

    phi: FeatureMap
    x: Float64
    y: Float64  # (n, c)
    slopes: Callable[[Moments], Slopes]

    @property
    def first(self) -> Float64:
        """The first lengthscales, () or (d,)."""
        return np.asarray(self.phi.kernel.lengthscale)  # type: ignore[attr-defined]

    def at(self, logs: Float64) -> FeatureMap:
        """Return the map of the same draw whose lengthscales are the first times exp(logs)."""
        return with_lengthscales(self.phi, self.first * np.exp(logs if len(logs) > 1 else logs[0]))  # type: ignore[no-any-return]

    def cost_and_gradient(self, logs: Float64) -> tuple[float, Float64]:
        """Return the cost and its derivatives."""
        phi = self.at(logs)
        slopes = self.slopes(moments(self.x, phi, y=self.y))
        total: Any = 0.0
        for here in strips(len(self.x), BLOCK // len(slopes.s)):
            features, pull = features_and_pull(phi, self.x[here])
            cotangent = 2 * features @ slopes.gram + self.y[here] @ slopes.cross.T + slopes.s
            total = total + pull(cotangent)[1] * phi.kernel.lengthscale  # type: ignore[attr-defined]
        each = np.atleast_1d(total)
        return slopes.cost, each if len(logs) == len(each) else np.sum(each, keepdims=True)


def _check_map(phi: object) -> None:
    if not (isinstance(phi, RandomFeatureMap | Nystrom | Hilbert) and isinstance(phi.kernel, Stationary)):
        raise ParameterError(
            "phi must be random features, a Nystrom map or a Hilbert basis of one kernel of x - y with a lengthscale "
            f"for its rows; got {shown(phi)}: of other kernels compare kernattn.solvers.log_evidence"
        )


def search_lengthscales(
    search: Search,
    objective: str,
    ard: bool,
    max_iterations: int,
    progress: bool | None = False,
    *,
    quiet: bool = False,
) -> Tuned:
    """Return the best lengthscales of a search by L-BFGS-B, and what they cost on the way; warn of bounds."""
    size = search.x.shape[1] if ard else 1
    low, high = (np.log(np.clip(search.first * by, *MODERATE) / search.first) for by in (1 / REACH, REACH))
    bounds = [(float(np.max(low)), float(np.min(high)))] * size
    trace: list[float] = []
    best: tuple[float, Float64] = np.inf, np.zeros(size)

    def objective_of(cost: float) -> float:
        """Return the objective that a cost per row stands for."""
        return -cost * len(search.x) if objective == "evidence" else float(np.exp(cost))

    with bar("tune", progress, unit="evaluation") as shown_evaluations:

        def evaluate(logs: Float64) -> tuple[float, Float64]:
            nonlocal best
            try:
                cost, gradient = search.cost_and_gradient(logs)
            except ParameterError:  # features that are 0 or beyond their dtype, a step too far
                if not trace:
                    raise
                return best[0] + LOST, np.zeros(size)
            trace.append(objective_of(cost))
            best = min(best, (cost, logs.copy()), key=lambda each: each[0])
            if shown_evaluations is not None:
                shown_evaluations.set_postfix({objective: f"{objective_of(best[0]):.6g}"}, refresh=False)
                shown_evaluations.update()
            return cost, gradient

        options = {"maxiter": max_iterations, "ftol": ENOUGH}
        result = optimize.minimize(
            evaluate, np.zeros(size), jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
    cost, logs = best
    least, most = np.any(logs <= bounds[0][0] + NEAR), size == 1 and logs[0] >= bounds[0][1] - NEAR
    if (least or most) and not quiet:  # an axis of its own ends at the most where it tells nothing
        held = "a thousandth of" if least else f"{REACH:g} times"
        warn_user(f"tune ended at a bound, {held} the first lengthscale: begin from there", UserWarning)
    phi, after = search.at(logs), objective_of(cost)
    return Tuned(phi, objective, trace[0], after, frozen(np.array(trace)), bool(result.success and not (least or most)))
