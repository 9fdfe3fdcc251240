"""Kernel ridge regression by conjugate gradients: on landmarks, or exact, with no more than M^2 numbers held."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from kernattn._arrays.namespaces import (
    Array,
    Float64,
    accumulation_dtype,
    check_floating,
    constant,
    frozen,
    namespace,
    to_numpy64,
)
from kernattn._runtime.checks import boolean, instance_of, one_of, positive_integer, positive_number, shown
from kernattn._runtime.extras import bar, has_bar
from kernattn._runtime.random import RNG, generator
from kernattn.errors import DTypeError, ParameterError, ShapeError
from kernattn.features import LANDMARKS, Nystrom, nystrom
from kernattn.features._data import checked_data
from kernattn.kernels import Kernel
from kernattn.solvers._check import check_beside, check_finite
from kernattn.solvers._conjugate_gradients import Operator, Stop, conjugate_gradients
from kernattn.solvers._preconditioners import inverse_of, inverse_on_landmarks, inverse_root, sums_of_kernel
from kernattn.solvers._sums import moments

FEW = 4096  # landmarks, up to which sums over all rows cost less than the dozen steps that they save
SAMPLE, PART = 4, 8  # beyond, the preconditioner is made of so many rows a landmark, and of this part of all rows


@final
@dataclass(frozen=True, eq=False, repr=False)
class KernelRidge:
    r"""A fit :math:`f(x) = \sum_j k(x, p_j) w_j` of kernel ridge regression.

    Attributes
    ----------
    kernel : Kernel
        The kernel.
    points : (m, d) numpy.ndarray
        The points p, float64: the landmarks, or all rows where the fit is exact.
    landmarks : (m, d) numpy.ndarray
        The landmarks; of an exact fit, those of the preconditioner.
    ridge : float
        The penalty.
    iterations : int
        Steps that were taken.
    residuals : (iterations + 1, c) numpy.ndarray
        What is left of the linear system before each step and at the end, relative to its right-hand side.
    converged : bool
        Whether all residuals came below the tolerance.
    """

    kernel: Kernel
    points: Float64
    landmarks: Float64
    ridge: float
    residuals: Float64
    converged: bool
    _weights: Float64  # (m, c)
    _vector: bool

    def __repr__(self) -> str:
        """Return the sizes, and whether it converged."""
        state = "converged" if self.converged else "NOT converged"
        return (
            f"KernelRidge({len(self.points)} points, ridge={self.ridge:g}, {state} after {self.iterations} iterations, "
            f"{self.kernel!r})"
        )

    @property
    def iterations(self) -> int:
        """Steps that were taken."""
        return len(self.residuals) - 1

    @property
    def weights(self) -> Float64:
        """Weights w of the points, (m,) or (m, c)."""
        return self._weights[:, 0] if self._vector else self._weights

    def predict(self, x: Array) -> Array:
        """Return predictions f(x), (n,) or (n, c) in the dtype of x.

        Parameters
        ----------
        x : (n, d) array
            Rows.

        Returns
        -------
        array
            The predictions.
        """
        xp = namespace(x=x)
        check_floating("x", x)
        own = xp.astype(x, accumulation_dtype(xp, x), copy=False)
        points, weights = (constant(xp, a, own.dtype, x) for a in (self.points, self._weights))
        values = xp.astype(self.kernel.matmul(own, points, weights), x.dtype, copy=False)
        return values[:, 0] if self._vector else values


def cg(
    kernel: Kernel,
    x: Array,
    y: Array,
    landmarks: int | Array | Nystrom,
    ridge: float,
    *,
    method: str = "uniform",
    exact: bool = False,
    tolerance: float = 1e-6,
    max_iterations: int = 200,
    progress: bool | None = False,
    rng: RNG = 0,
) -> KernelRidge:
    r"""Fit kernel ridge regression by preconditioned conjugate gradients, in memory O(m^2) beside the rows.

    With m landmarks L it is Falkon's estimator (Rudi, Carratino and Rosasco 2017),

    .. math:: f = \sum_{j \in L} w_j k(\cdot, x_j), \quad
              w = \mathrm{argmin} \sum_i |y_i - f(x_i)|^2 + \lambda\, w^T K_{LL} w:

    ridge regression on the features of a `Nystrom` map without an intercept, at two products of an n x m kernel matrix
    a step. The preconditioner is the Cholesky factor of sums over rows, which fits landmarks of every method: over all
    of them up to 4,096 landmarks, where a step or two remain, else over a sample. With `exact` the points are all rows,
    (K + lambda) w = y, a product of the n x n matrix a step, and the landmarks make the preconditioner (Diaz, Epperly,
    Frangella, Tropp and Webber 2023): "rpcholesky" is then the method to take. Kernel matrices are never held, and all
    is computed in float64.

    The penalty is on the sum over rows, as in `ridge`, where Falkon's lambda is on the mean: n times that. Targets
    should be centred, as there is no intercept.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    x : (n, d) array
        Rows.
    y : (n,) or (n, c) array
        Targets, of a real floating dtype.
    landmarks : int, array or Nystrom
        The number m of landmarks, chosen by `method`; or points (m, d), or indices of rows (m,); or a Nystrom map of
        the kernel.
    ridge : float
        The penalty lambda, positive.
    method : str
        How landmarks are chosen: a name in `kernattn.features.LANDMARKS`.
    exact : bool
        Whether all rows are points.
    tolerance : float
        Iterations end once all residuals are below this part of the right-hand side.
    max_iterations : int
        Iterations end there in any case: `converged` of the fit says which came first.
    progress : bool or None
        Show the iterations on stderr; None shows them on a terminal only.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of landmarks and of the sample.

    Returns
    -------
    KernelRidge
        The fit.

    Raises
    ------
    DTypeError, ShapeError, EmptyInputError, MixedLibraryError, ParameterError
        Before any work, if an argument does not fit, or rows hold NaN or infinity; or if the ridge is below the
        rounding of the sums.
    MissingExtra
        If progress is asked for and tqdm is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-2, 2, (2000, 1))
    >>> y = np.sin(3 * x[:, 0]) + 0.1 * rng.standard_normal(2000)
    >>> fit = ka.solvers.cg(ka.kernels.Gaussian(0.5), x, y, landmarks=30, ridge=0.1)
    >>> fit.converged, bool(abs(fit.predict(np.array([[0.5]]))[0] - np.sin(1.5)) < 0.03)
    (True, True)
    """
    instance_of("kernel", kernel, Kernel)
    ridge, tolerance = positive_number("ridge", ridge), positive_number("tolerance", tolerance)
    positive_integer("max_iterations", max_iterations)
    exact = boolean("exact", exact)
    has_bar("cg", progress)  # else what it lacks shows after the choice of landmarks
    rows, targets = _checked(x, y)
    source = generator(rng)
    phi = _map(kernel, rows, landmarks, one_of("method", method, LANDMARKS), source)
    assert phi.landmarks is not None
    solve = _all_rows if exact else _on_landmarks
    with bar("cg", progress, unit="iteration", total=max_iterations) as shown_iterations:
        stop = Stop(tolerance, max_iterations, shown_iterations)
        weights, residuals, converged = solve(phi, rows, targets, ridge, stop, source)
    points = frozen(rows) if exact else phi.landmarks
    return KernelRidge(kernel, points, phi.landmarks, ridge, frozen(residuals), converged, frozen(weights), y.ndim == 1)


def _checked(x: Array, y: Array) -> tuple[Float64, Float64]:
    """Return rows (n, d) and targets (n, c), copies in float64 on the host."""
    namespace(x=x, y=y)
    if x.ndim != 2:
        raise ShapeError(f"x must be (n, d); got shape {tuple(x.shape)}")
    check_beside("y", y, x.shape[0], columns=True)
    for name, array in (("x", x), ("y", y)):
        check_finite(name, array)
    return checked_data(x, name="x"), to_numpy64(y).reshape(x.shape[0], -1)


def _map(kernel: Kernel, rows: Float64, landmarks: Any, method: str, rng: np.random.Generator) -> Nystrom:
    if isinstance(landmarks, Nystrom):
        if landmarks.kernel != kernel or landmarks.dim != rows.shape[1]:
            raise ParameterError(f"landmarks must be a map of {kernel} for d = {rows.shape[1]}; got {landmarks!r}")
        return landmarks
    if isinstance(landmarks, str):
        raise DTypeError(f"landmarks must be a number, an array or a Nystrom map, named by method=; got {landmarks!r}")
    if getattr(landmarks, "ndim", 0):
        return nystrom(kernel, rows, landmarks=landmarks)
    m = positive_integer("landmarks", landmarks)
    if m > len(rows):
        raise ParameterError(f"landmarks must be at most the {len(rows)} rows; got {shown(landmarks)}")
    return nystrom(kernel, rows, m, method, rng=rng)


def _on_landmarks(
    phi: Nystrom, rows: Float64, targets: Float64, ridge: float, stop: Stop, rng: np.random.Generator
) -> tuple[Float64, Float64, bool]:
    """Solve (Phi^T Phi + lambda) v = Phi^T y; the weights are K_LL^(-1/2) v."""
    kernel, root, landmarks, n = phi.kernel, inverse_root(phi), phi.landmarks, len(rows)
    assert kernel is not None
    assert landmarks is not None
    count = n if len(root) <= FEW else min(n, SAMPLE * len(root) + n // PART)
    some = rows if count == n else rows[np.sort(rng.choice(n, count, replace=False))]
    sums, cross = sums_of_kernel(kernel, some, landmarks, targets if count == n else np.zeros((count, 0)))
    if count < n:
        sums, cross = sums * (n / count), kernel.matmul(landmarks, rows, targets)
    precondition = inverse_on_landmarks(phi, sums, ridge)
    if precondition is None:  # features are exact where products of kernel values round, and cost twice as much
        precondition = _inverse_of_features(phi, some, n / count, ridge)

    def product(v: Float64) -> Float64:
        sums: Float64 = root.T @ kernel.matmul(landmarks, rows, kernel.matmul(rows, landmarks, root @ v))
        return sums + ridge * v

    found, residuals, converged = conjugate_gradients(product, root.T @ cross, precondition, stop)
    return root @ found, residuals, converged


def _inverse_of_features(phi: Nystrom, rows: Float64, scale: float, ridge: float) -> Operator:
    gram = scale * moments(phi, rows).gram
    return inverse_of(gram, ridge, float(np.finfo(float).eps * np.linalg.norm(gram)))


def _all_rows(
    phi: Nystrom, rows: Float64, targets: Float64, ridge: float, stop: Stop, rng: np.random.Generator
) -> tuple[Float64, Float64, bool]:
    """Solve (K + lambda) w = y, with (Phi Phi^T + lambda)^-1 = (1 - Phi (Phi^T Phi + lambda)^-1 Phi^T) / lambda."""
    kernel, root, landmarks = phi.kernel, inverse_root(phi), phi.landmarks
    assert kernel is not None
    inverse = _inverse_of_features(phi, rows, 1.0, ridge)

    def product(v: Float64) -> Float64:
        sums: Float64 = kernel.matmul(rows, None, v)
        return sums + ridge * v

    def precondition(r: Float64) -> Float64:
        inner = inverse(root.T @ kernel.matmul(landmarks, rows, r))
        near: Float64 = kernel.matmul(rows, landmarks, root @ inner)
        return (r - near) / ridge

    return conjugate_gradients(product, targets, precondition, stop)
