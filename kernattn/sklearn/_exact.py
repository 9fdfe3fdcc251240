"""Ridge regression with the kernel itself, without features."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self
from warnings import warn

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning

from kernattn._arrays.csr import is_sparse
from kernattn._arrays.namespaces import Array, Float64, like, to_numpy64
from kernattn._runtime.checks import boolean, positive_integer, positive_number
from kernattn.kernels import Kernel, Stationary
from kernattn.sklearn._by_targets import tune_by_evidence, tune_by_landmarks
from kernattn.sklearn._drawn import without_zeros
from kernattn.sklearn._inputs import array_beside, check_targets, one_ridge, seed_of
from kernattn.sklearn._maps import MapEstimator, start_kernel
from kernattn.sklearn._parameters import check_parameters
from kernattn.sklearn._ridge import FeatureRidge
from kernattn.solvers import KernelRidge, kernel_ridge
from kernattn.solvers._check import widen
from kernattn.solvers._rows import are_same
from kernattn.solvers._spectrum import cast_as
from kernattn.solvers._sums import average

LANDMARKS = 512  # on which rows left out choose a ridge


@dataclass(eq=False, repr=False)
class ExactKernelRidge(MultiOutputMixin, RegressorMixin, MapEstimator):
    r"""Ridge regression with a kernel at all rows, :math:`f(x) = \mu + \sum_i w_i k(x, x_i)`,
    :math:`(K + \lambda) w = y - \mu`.

    It is `kernattn.solvers.kernel_ridge` with ``exact=True``, of targets less their mean :math:`\mu`: scikit-learn's
    `KernelRidge` without its limit to rows whose kernel matrix fits in memory. Up to 11,585 rows a factor solves the
    system; more, or more than 2,048 where landmarks are asked for, take steps of conjugate gradients, each a product of
    the n x n matrix, of which blocks are held. All is computed in float64, and predictions have the dtype of their
    rows. The rows are kept, as every prediction reads them. A weight counts a row that many times.

    Parameters
    ----------
    kernel : str or Kernel
        A name in `kernattn.kernels.KERNELS`, or a kernel; none of them needs features.
    lengthscale : float, (d,) array_like, "tune", "ard", "scale" or None
        As `FeatureRidge` takes it; None is "tune" for a kernel by name.
    ridge : float or None
        The penalty :math:`\lambda`, on the sum over rows: scikit-learn's alpha. None takes the one that `FeatureRidge`
        chooses on 512 landmarks, from rows left out; of several targets, the geometric mean of theirs.
    tol : float
        Steps end once what is left of the system is below this part of the targets.
    max_iter : int
        Steps end there in any case, with a warning.
    num_landmarks : int or None
        Landmarks that make the steps few. None takes 13 times the root of n, 4,096 at most.
    warm_start : bool
        Whether a second fit to the same rows begins at the weights of the first: to go on with a larger `max_iter` or
        a smaller `tol`, or from another ridge.
    random_state : int, RandomState or None
        Source of landmarks.

    Attributes
    ----------
    kernel_, n_features_in_ : object
        The kernel with its lengthscale, and the number d of columns.
    y_mean_ : numpy.ndarray
        The targets' mean :math:`\mu`.
    solution_ : kernattn.solvers.KernelRidge
        The fit, with its penalty, its weights and what is left after each step.
    n_iter_ : int
        Number of steps.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.sklearn import ExactKernelRidge
    >>> rng = np.random.default_rng(0)
    >>> x = rng.uniform(-2, 2, (500, 1))
    >>> y = np.sin(3 * x[:, 0]) + 0.1 * rng.standard_normal(500)
    >>> model = ExactKernelRidge(lengthscale=0.5, random_state=0).fit(x, y)
    >>> round(model.score(x, y), 2), model.solution_.converged
    (0.98, True)
    """

    kernel: Any = "gaussian"
    _: KW_ONLY
    lengthscale: Any = None
    ridge: Any = None
    tol: float = 1e-3
    max_iter: int = 200
    num_landmarks: int | None = None
    warm_start: bool = False
    random_state: Any = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit rows X (n, d), which may be CSR, with targets y (n,) or (n, c); a weight counts a row that many times."""
        check_parameters(self)
        tolerance, steps = positive_number("tol", self.tol), positive_integer("max_iter", self.max_iter)
        x, y, weights = check_targets(self, X, y, sample_weight, reset=True, ensure_min_samples=2)
        x, y, weights = without_zeros(x, y, weights)
        ridge = one_ridge(self.ridge)
        number = self.num_landmarks
        if number is not None:
            number = min(positive_integer("num_landmarks", number), x.shape[0])
        before = getattr(self, "solution_", None) if boolean("warm_start", self.warm_start) else None
        seed = seed_of(self.random_state)
        kernel, mean = self._tune(x, y, weights), average(y, weights)
        fit = kernel_ridge(
            x,
            array_beside(x, y - mean),
            kernel,
            penalty=_choose_ridge(x, y, weights, kernel, seed) if ridge is None else ridge,
            weights=array_beside(x, weights),
            num_landmarks=number,
            method="rpcholesky",
            exact=True,
            start=before if before is not None and _is_of(before, x, y) else None,
            tolerance=tolerance,
            max_iterations=steps,
            rng=seed,
        )
        if not fit.converged:
            left = float(np.max(fit.residuals[-1]))
            message = f"the fit has not converged in {fit.iterations} steps, which left {left:.1g} of the targets"
            more = "raise max_iter, num_landmarks or ridge, and warm_start=True goes on from here"
            warn(f"{message}: {more}", ConvergenceWarning, stacklevel=2)
        self.kernel_, self.y_mean_, self.solution_, self.n_iter_ = kernel, mean, fit, fit.iterations
        return self

    def predict(self, X: Any) -> Any:
        """Return predictions (n,) or (n, c) of rows X (n, d), whose kernel values are held a block at a time."""
        x = self._check_new(X)
        values = self.solution_.predict(widen(x))
        return cast_as(values + like(self.y_mean_, values), x)

    def _tune(self, x: Array, y: Float64, weights: Float64 | None) -> Kernel:
        """Return the kernel, with the lengthscale that is given, or that the targets choose."""
        kernel, how = start_kernel(self.kernel, self.lengthscale, x, array_beside(x, weights), ("scale", "tune", "ard"))
        if how == "scale" or not isinstance(kernel, Stationary):
            return kernel
        if how == "ard":
            return tune_by_evidence(kernel, True, x, y, weights, False).kernel or kernel
        if how == "tune":
            return tune_by_landmarks(kernel, x, y, weights, False).kernel or kernel
        return kernel


def _choose_ridge(x: Array, y: Float64, weights: Float64 | None, kernel: Kernel, seed: int) -> float:
    """Return the penalty that ridge regression on landmarks prefers; of several targets, one between theirs."""
    model = FeatureRidge(kernel, num_features=LANDMARKS, estimator="rpcholesky", linear=False, random_state=seed)
    penalties = model.fit(x, array_beside(x, y), array_beside(x, weights)).solution_.penalty
    return float(np.exp(np.mean(np.log(penalties))))


def _is_of(fit: KernelRidge, x: Array, y: Float64) -> bool:
    """Whether a fit is to these rows and as many columns of targets."""
    columns = y.reshape(len(y), -1).shape[1]
    return fit._weights.shape == (x.shape[0], columns) and are_same(fit.points, x if is_sparse(x) else to_numpy64(x))
