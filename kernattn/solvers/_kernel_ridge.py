"""Kernel ridge regression by conjugate gradients: on landmarks, or exact, with M^2 numbers held or a factor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from kernattn._arrays.csr import is_sparse, numbers_of
from kernattn._arrays.graphs import outside_graphs
from kernattn._arrays.namespaces import (
    Array,
    Float64,
    check_floating,
    constant,
    frozen,
    namespace,
    to_numpy64,
    without_flags,
)
from kernattn._arrays.plain import quiet
from kernattn._runtime.checks import (
    boolean,
    instance_of,
    one_of,
    positive_integer,
    positive_number,
    shown,
)
from kernattn._runtime.deprecated import old_attribute
from kernattn._runtime.elsewhere import told_keywords
from kernattn._runtime.extras import bar, has_bar
from kernattn._runtime.random import RNG, generator
from kernattn.errors import DTypeError, ParameterError
from kernattn.features import LANDMARKS, Nystrom
from kernattn.features._nystrom.choose import choose_points
from kernattn.kernels import Kernel
from kernattn.solvers._check import widen
from kernattn.solvers._conjugate_gradients import Operator, Stop, conjugate_gradients, units_of
from kernattn.solvers._eased import Eased, ease
from kernattn.solvers._factor import HELD, invert_on_rows, pays
from kernattn.solvers._landmark_sums import Landmarks, pivot, sum_rows
from kernattn.solvers._rows import are_same, check_and_copy, freeze, weigh
from kernattn.solvers._spectrum import cast_as
from kernattn.solvers._targets import OfTargets

FEW = 4096  # landmarks, up to which sums over all rows cost less than the steps that they save
SAMPLE, PART = 4, 8  # beyond, the preconditioner is made of so many rows a landmark, and of this part of all rows
OWN, MOST = 13, 4096  # landmarks of a fit to all n rows that brings its own: this times root n, the work of a few steps
AMONG = 2  # rows among which each of them is chosen
Given = tuple[Any, Any, Any]  # a number of landmarks, landmarks, a map


@final
@quiet
@dataclass(frozen=True, eq=False, repr=False)
class KernelRidge(OfTargets):
    r"""A fit :math:`f(x) = \sum_j k(x, p_j) w_j` of kernel ridge regression.

    Attributes
    ----------
    kernel : Kernel
        The kernel.
    points : (m, d) numpy.ndarray or CSR matrix
        The points p, float64: the landmarks, or all rows whose weight is not 0 where the fit is exact.
    landmarks : (m, d) numpy.ndarray
        The landmarks; of an exact fit, those of the preconditioner, and all rows where a factor is it.
    penalty : float
        The penalty lambda.
    residuals : (iterations + 1, c) numpy.ndarray
        What is left of the linear system before each step and at the end, relative to its right-hand side.
    converged : bool
        Whether all residuals came below the tolerance.
    """

    kernel: Kernel
    points: Any
    landmarks: Any
    penalty: float
    residuals: Float64
    converged: bool
    _weights: Float64  # (m, c)
    _vector: bool

    ridge = old_attribute("ridge", "penalty")

    def __repr__(self) -> str:
        """Return the sizes, and whether it converged."""
        state = "converged" if self.converged else "NOT converged"
        steps = f"{state} after {self.iterations} iterations"
        return f"KernelRidge({self.points.shape[0]} points, penalty={self.penalty:g}, {steps}, {self.kernel!r})"

    @property
    def iterations(self) -> int:
        """Steps that were taken."""
        return len(self.residuals) - 1

    @property
    def weights(self) -> Float64:
        """Weights w of the points, (m,) or (m, c)."""
        return self._shape(self._weights)  # type: ignore[no-any-return]

    @outside_graphs
    def predict(self, x: Array) -> Array:
        """Return predictions f(x) of rows (n, d), (n,) or (n, c) in the dtype of x; rows may be CSR."""
        namespace(x=numbers_of(x))
        check_floating("x", numbers_of(x))
        if is_sparse(x) or is_sparse(self.points):
            rows = widen(x) if is_sparse(x) else to_numpy64(x)
            return self._shape(cast_as(self.kernel.matmul(rows, self.points, self._weights), x))
        rows = widen(x)
        xp = namespace(x=rows)
        points, weights = (constant(xp, a, rows.dtype, rows) for a in (self.points, self._weights))
        return self._shape(cast_as(self.kernel.matmul(rows, points, weights), x))


@told_keywords
@without_flags
def kernel_ridge(
    x: Array,
    y: Array,
    kernel: Kernel,
    *,
    penalty: float,
    weights: Array | None = None,
    num_landmarks: int | None = None,
    landmarks: Array | None = None,
    phi: Nystrom | None = None,
    method: str = "uniform",
    exact: bool = False,
    start: KernelRidge | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 200,
    progress: bool | None = False,
    rng: RNG = None,
) -> KernelRidge:
    r"""Fit kernel ridge regression by preconditioned conjugate gradients, in memory O(m^2) beside the rows.

    With m landmarks L it is Falkon's estimator (Rudi, Carratino and Rosasco 2017),

    .. math:: f = \sum_{j \in L} w_j k(\cdot, x_j), \quad
              w = \mathrm{argmin} \sum_i |y_i - f(x_i)|^2 + \lambda\, w^T K_{LL} w:

    ridge regression on the features of a `Nystrom` map without an intercept. Up to 4,096 landmarks, sums over all rows
    are the system: their factor solves it, and what is left, and may be lost by rounding, is the residual that is told.
    Where that is above the tolerance, and with more landmarks, where sums are over a sample, the factor is the
    preconditioner of steps at two products of an n x m kernel matrix each. All is computed in float64.

    With `exact` the points are all rows,

    .. math:: f = \sum_i w_i k(\cdot, x_i), \quad (K + \lambda) w = y.

    Up to 11,585 rows, a GiB, a factor of the matrix solves it, and one step says whether it was exact. Of more rows no
    kernel matrix is held: a step is a product of the n x n matrix, and landmarks make the preconditioner (Diaz,
    Epperly, Frangella, Tropp and Webber 2023). Those that the fit chooses itself are 13 times the root of n, 4,096 at
    most, picked by "rpcholesky" among twice as many rows: all takes less than 1 GiB beside the rows. A number of
    landmarks that is given, or landmarks, are taken at any number of rows from 2,049 on; up to there, the factor takes
    less time. The smaller the penalty, the more steps; more landmarks make them fewer.

    With weights :math:`s_i` rows count that often: :math:`(K + \lambda\, \mathrm{diag}(1 / s)) w = y`, of those whose
    weight is not 0. The rows may be a CSR matrix, of which a block at a time is made dense.

    The penalty is on the sum over rows, as in `ridge`, where Falkon's lambda is on the mean: n times that. Targets
    should be centred, as there is no intercept.

    Parameters
    ----------
    x : (n, d) array
        Rows; with `exact` also a CSR matrix of SciPy.
    y : (n,) or (n, c) array
        Targets, of a real floating dtype.
    kernel : Kernel
        The kernel.
    penalty : float
        The penalty lambda, above the rounding of the sums.
    weights : (n,) array, optional
        Weights of the rows, 0 or more, of a fit with `exact`: how often each counts. On
        landmarks, `moments` takes them.
    num_landmarks : int, optional
        The number m of landmarks, chosen by `method`. Exactly one of this, `landmarks` and `phi` is given; none will
        do where the fit is exact.
    landmarks : array, optional
        The landmarks: points (m, d), or indices of rows (m,).
    phi : Nystrom, optional
        A map of the kernel, whose landmarks are taken.
    method : str
        How landmarks are chosen: a name in `kernattn.features.LANDMARKS`.
    exact : bool
        Whether all rows are points.
    start : KernelRidge, optional
        A fit to these rows with `exact`, at whose weights steps begin: to go on where `max_iterations` came first, or
        from another penalty. Its landmarks are taken unless others are given.
    tolerance : float
        Iterations end once all residuals are below this part of the right-hand side.
    max_iterations : int
        Iterations end there in any case: `converged` of the fit says which came first.
    progress : bool or None
        Show the iterations on stderr; None shows them on a terminal only.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of landmarks and of the sample.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-2, 2, (2000, 1))
    >>> y = np.sin(3 * x[:, 0]) + 0.1 * rng.standard_normal(2000)
    >>> fit = ka.solvers.kernel_ridge(x, y, ka.kernels.Gaussian(0.5), penalty=0.1, num_landmarks=30, rng=0)
    >>> fit.converged, bool(abs(fit.predict(np.array([[0.5]]))[0] - np.sin(1.5)) < 0.03)
    (True, True)
    """
    instance_of("kernel", kernel, Kernel)
    penalty, tolerance = positive_number("penalty", penalty), positive_number("tolerance", tolerance)
    positive_integer("max_iterations", max_iterations)
    exact = boolean("exact", exact)
    has_bar("kernel_ridge", progress)  # else what it lacks shows after the choice of landmarks
    if not exact and (weights is not None or is_sparse(x)):
        what = "weights" if weights is not None else "a CSR matrix x"
        raise ParameterError(f"{what} must come with exact=True; on landmarks, moments and ridge take it")
    rows, targets = check_and_copy(x, y, sparse=exact)
    rows, targets, roots = weigh(rows, targets, weights)
    source = generator(rng)
    given = num_landmarks, landmarks, phi
    _check_landmarks(given, rows.shape[0], exact)
    one_of("method", method, LANDMARKS)
    begin = None if start is None else _check_start(start, rows, targets, exact)
    eased = ease(kernel, rows)
    inner, begin = penalty / eased.unit, None if begin is None else begin * eased.unit / roots
    inverse = _invert_by_factor(eased, rows, targets.shape[1], inner, given, roots) if exact else None
    chosen, pivoted = freeze(rows), None
    if inverse is None:
        if start is not None and _is_free(given) and start.landmarks.shape[0] < rows.shape[0]:
            given = None, start.landmarks, None
        chosen, pivoted = _choose_landmarks(eased, rows, given, method, source)
    with bar("kernel_ridge", progress, unit="iteration", total=max_iterations) as shown_iterations:
        stop = Stop(tolerance, max_iterations, shown_iterations)
        if pivoted is not None and exact:
            inverse = _precondition_rows(eased, pivoted, rows, inner, roots)
        if inverse is not None:
            found, residuals, converged = _solve_on_rows(eased, rows, targets, inner, inverse, stop, begin, roots)
            found = roots * found
        else:
            assert pivoted is not None
            found, residuals, converged = _solve_on_landmarks(eased, pivoted, rows, targets, inner, stop, source)
    with np.errstate(over="ignore"):
        found = found / eased.unit
    if not np.isfinite(found).all():
        raise ParameterError("y must be smaller, or the penalty larger: weights of the points are beyond float64")
    points = freeze(rows) if exact else chosen
    fields = (kernel, points, chosen, penalty, frozen(residuals), converged, frozen(found))
    return KernelRidge(*fields, y.ndim == 1)


def _check_landmarks(given: Given, n: int, exact: bool) -> None:
    """Raise unless a number of landmarks, landmarks or a map is given, or nothing where the fit is exact."""
    count = sum(each is not None for each in given)
    if count > 1 or (count == 0 and not exact):
        names = zip(("num_landmarks", "landmarks", "phi"), given, strict=True)
        known = " and ".join(name for name, each in names if each is not None) or "none"
        raise ParameterError(
            f"give one of num_landmarks, landmarks and phi, and no more; with exact=True none will do; got {known}"
        )
    if given[0] is not None and positive_integer("num_landmarks", given[0]) > n:
        raise ParameterError(f"num_landmarks must be at most the {n} rows; got {shown(given[0])}")


def _check_start(start: KernelRidge, rows: Any, targets: Float64, exact: bool) -> Float64:
    """Return the weights of a fit to these rows, (n, c)."""
    instance_of("start", start, KernelRidge)
    if not exact:
        raise ParameterError("start is for exact=True: on landmarks, sums need no start")
    if start._weights.shape != targets.shape or not are_same(start.points, rows):
        raise ParameterError(f"start must be a fit to these rows and as many columns of targets; got {start!r}")
    return start._weights


def _is_free(given: Given) -> bool:
    """Whether the fit chooses landmarks itself."""
    return all(each is None for each in given)


def _invert_by_factor(kernel: Eased, rows: Any, c: int, penalty: float, given: Given, roots: Any) -> Operator | None:
    """Return the inverse by a factor of the matrix: without landmarks, or of so few rows that it takes less time."""
    asked, n = _is_free(given), rows.shape[0]
    if asked and n**2 > HELD:
        return None
    if not asked and (given[0] is None or not pays(n, c)):
        return None
    inverse = invert_on_rows(kernel, rows, penalty, roots)
    if asked and inverse is None:
        raise ParameterError(
            f"penalty must be above the rounding of the kernel's matrix; got {penalty * kernel.unit:g}"
        )
    return inverse


def _choose_landmarks(
    eased: Eased, rows: Any, given: Given, method: str, rng: np.random.Generator
) -> tuple[Float64, Landmarks]:
    """Return a number of landmarks, landmarks, those of a map, or else as many as rows ask for, and their pivots."""
    num_landmarks, landmarks, phi = given
    kernel, cutoff, n = eased.kernel, 0.0, rows.shape[0]
    if phi is not None:
        instance_of("phi", phi, Nystrom)
        if phi.kernel != kernel or phi.dim != rows.shape[1]:
            raise ParameterError(f"phi must be a map of {kernel} for d = {rows.shape[1]}; got {phi!r}")
        landmarks, cutoff = phi.landmarks, phi.cutoff
    elif landmarks is not None:
        if not getattr(landmarks, "ndim", 0):
            raise DTypeError(f"landmarks must be points (m, d) or indices (m,); got {shown(landmarks)}")
    elif num_landmarks is None:
        num_landmarks, method = min(int(OWN * n**0.5), MOST, n), "rpcholesky"
        rows = rows[np.sort(rng.choice(n, min(AMONG * num_landmarks, n), replace=False))]
    points, matrix = choose_points(rows, kernel, num_landmarks, method, landmarks, rng)
    return frozen(points), pivot(points, matrix if eased.unit == 1 else matrix / eased.unit, cutoff)


def _solve_on_landmarks(
    kernel: Eased,
    landmarks: Landmarks,
    rows: Float64,
    targets: Float64,
    penalty: float,
    stop: Stop,
    rng: np.random.Generator,
) -> tuple[Float64, Float64, bool]:
    """Solve (Phi^T Phi + lambda) v = Phi^T y; the weights are L^-T v."""
    n, m, points = len(rows), len(landmarks.lower), landmarks.points
    units = units_of(targets)
    targets = targets / units
    count = n if m <= FEW else min(n, SAMPLE * m + n // PART)
    some = slice(None) if count == n else np.sort(rng.choice(n, count, replace=False))
    sums, cross = sum_rows(kernel, landmarks, rows[some], targets[some], penalty, n / count)
    if count == n:
        v, residuals = sums.solve(cross, np.linalg.norm(targets, axis=0))
        if np.max(residuals) <= stop.tolerance:
            if stop.shown is not None:
                stop.shown.update()
            before = np.any(targets != 0, axis=0).astype(float)
            return landmarks.weights_of(v) * units, np.stack([before, residuals * before]), True

    def product(v: Float64) -> Float64:
        weights = landmarks.weights_of(v)[landmarks.order]
        return landmarks.onto(kernel.matmul(points, rows, kernel.matmul(rows, points, weights))) + penalty * v

    cross = sums.onto(cross) if count == n else landmarks.onto(kernel.matmul(points, rows, targets))
    v, residuals, converged = conjugate_gradients(product, cross, sums.precondition, stop)
    return landmarks.weights_of(v) * units, residuals, converged


def _precondition_rows(kernel: Eased, landmarks: Landmarks, rows: Any, penalty: float, roots: Any) -> Operator:
    """Return the product with (F F^T + lambda)^-1 = (1 - F (F^T F + lambda)^-1 F^T) / lambda, F = R Phi."""
    points, n = landmarks.points, rows.shape[0]
    sums, _ = sum_rows(kernel, landmarks, rows, np.zeros((n, 0)), penalty, roots=roots)

    def precondition(r: Float64) -> Float64:
        inner = sums.precondition(landmarks.onto(kernel.matmul(points, rows, roots * r)))
        near: Float64 = roots * kernel.matmul(rows, points, landmarks.weights_of(inner)[landmarks.order])
        return (r - near) / penalty

    return precondition


def _solve_on_rows(
    kernel: Eased,
    rows: Any,
    targets: Float64,
    penalty: float,
    precondition: Operator,
    stop: Stop,
    start: Float64 | None,
    roots: Any,
) -> tuple[Float64, Float64, bool]:
    """Solve (R K R + lambda) u = R y."""

    def product(v: Float64) -> Float64:
        sums: Float64 = roots * kernel.matmul(rows, None, roots * v)
        return sums + penalty * v

    return conjugate_gradients(product, targets, precondition, stop, start)
