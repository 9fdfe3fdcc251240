"""Logistic regression on features: Newton's steps, each from weighted moments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import cho_factor, cho_solve

from kernattn._array import Array, Float64, constant, frozen, like, namespace, to_numpy64, widest
from kernattn._check import boolean, instance_of, positive_integer, positive_number, shown
from kernattn._extras import bar
from kernattn._scipy import special
from kernattn.errors import DTypeError, EmptyInputError, ParameterError, ShapeError
from kernattn.features import FeatureMap
from kernattn.solvers._check import check_beside, check_finite, check_map_takes, refuse
from kernattn.solvers._moments import moments
from kernattn.solvers._spectrum import in_dtype_of, projections

__all__ = ["Logistic", "logistic"]

LEAST = 1e-10  # weight of a row in a Hessian, at least: the slope of a row that is far off is kept
HALVINGS = 40
DECREASE = 1e-4  # of what the slope promises: a step that brings less is halved (Armijo)

Blocks = Callable[[], Iterator[tuple[Array, NDArray[Any], Float64 | None]]]


@final
@dataclass(frozen=True, eq=False, repr=False)
class Logistic:
    """A fit of logistic regression.

    Attributes
    ----------
    phi : FeatureMap
        The map.
    classes : (k,) numpy.ndarray
        The labels, sorted.
    ridge : float
        The penalty.
    iterations : int
        Steps that were taken, of the class that took most.
    converged : bool
        Whether every class came to an end before `max_iterations`.
    """

    phi: FeatureMap
    classes: NDArray[Any]
    ridge: float
    iterations: int
    converged: bool
    _weights: Float64  # (M, 1) of two classes, or (M, k)
    _intercept: Float64

    def __repr__(self) -> str:
        """Return the sizes, and whether it converged."""
        state = "converged" if self.converged else "NOT converged"
        return f"Logistic({len(self.classes)} classes, ridge={self.ridge:g}, {state}, phi={self.phi!r})"

    @property
    def weights(self) -> Float64:
        """Weights w of the features, (M,) of two classes, of which the second has them; else (M, k)."""
        return self._weights[:, 0] if len(self.classes) == 2 else self._weights

    @property
    def intercept(self) -> Float64:
        """Intercept b, () or (k,): 0 without one."""
        return self._intercept[0] if len(self.classes) == 2 else self._intercept

    def scores(self, x: Array, *, backend: str | None = None) -> Array:
        """Return phi(x)^T w + b, (..., n) of two classes, else (..., n, k), in the dtype of x.

        Parameters
        ----------
        x : (..., n, d) array
            Rows.
        backend : {None, "reference", "cpu", "gpu"}
            Which implementation makes the features.

        Returns
        -------
        array
            The scores.
        """
        values = projections(self.phi, x, self._weights, -self._intercept, backend)
        values = in_dtype_of(values, x)
        return values[..., 0] if len(self.classes) == 2 else values

    def predict_proba(self, x: Array, *, backend: str | None = None) -> Array:
        """Return probabilities of the classes, (..., n, k) in the dtype of x.

        Parameters
        ----------
        x : (..., n, d) array
            Rows.
        backend : {None, "reference", "cpu", "gpu"}
            Which implementation makes the features.

        Returns
        -------
        array
            The probabilities: of several classes, each by its own fit against all others, divided by their sum.
        """
        scores = self.scores(x, backend=backend)
        host = to_numpy64(scores)
        chances = special.expit(np.stack([-host, host], axis=-1) if len(self.classes) == 2 else host)
        sums = chances.sum(axis=-1, keepdims=True)
        chances = np.divide(chances, sums, out=np.full_like(chances, 1 / len(self.classes)), where=sums > 0)
        return like(chances, scores)

    def predict(self, x: Array, *, backend: str | None = None) -> NDArray[Any]:
        """Return the likeliest labels, (..., n), on the host.

        Parameters
        ----------
        x : (..., n, d) array
            Rows.
        backend : {None, "reference", "cpu", "gpu"}
            Which implementation makes the features.

        Returns
        -------
        numpy.ndarray
            The labels.
        """
        host = to_numpy64(self.scores(x, backend=backend))
        best = (host > 0).astype(int) if len(self.classes) == 2 else np.argmax(host, axis=-1)
        labels: NDArray[Any] = self.classes[best]
        return labels


def logistic(
    phi: FeatureMap,
    x: Array | Iterable[tuple[Any, ...]] | Callable[[], Iterable[tuple[Any, ...]]],
    y: Any = None,
    *,
    ridge: float,
    weights: Array | None = None,
    intercept: bool = True,
    tolerance: float = 1e-9,
    max_iterations: int = 100,
    progress: bool | None = False,
    backend: str | None = None,
) -> Logistic:
    r"""Fit logistic regression, :math:`\min \sum_i w_i \log(1 + e^{-t_i f(x_i)}) + \frac{\lambda}{2} |w|^2`, t = -1, 1.

    f(x) = phi(x)^T w + b. Newton's method as iteratively reweighted least squares (McCullagh and Nelder 1989, section
    2.5): a step is one pass over the rows for their `moments`, weighted by p (1 - p), and is halved until the sum falls
    as its slope promises, so that classes which a plane divides do no harm. Several classes are each fitted against all
    others; this is not the multinomial model. The intercept is not penalised. scikit-learn's C is 1 / lambda.

    Parameters
    ----------
    phi : FeatureMap
        The map.
    x : (n, d) array, or blocks
        Rows; or an iterable of blocks (x, y) or (x, y, weights) that can be walked again, as a list can, or a function
        that returns an iterable each time it is called.
    y : (n,) array_like
        Labels: numbers, booleans or strings. Left out where there are blocks.
    ridge : float
        The penalty lambda, positive.
    weights : (n,) array, optional
        Weights of the rows, 0 or more.
    intercept : bool
        Fit b too; else it is 0.
    tolerance : float
        The last step is the one from which on the sum cannot fall by more than this part.
    max_iterations : int
        Steps end there in any case: `converged` of the fit says which came first.
    progress : bool or None
        Show the steps on stderr; None shows them on a terminal only.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation makes the features.

    Returns
    -------
    Logistic
        The fit.

    Raises
    ------
    DTypeError, ShapeError, EmptyInputError, MixedLibraryError, ParameterError, BackendUnavailable
        Before any step, if an argument does not fit, rows hold NaN or infinity, or there are fewer than two classes.
    MissingExtra
        If progress is asked for and tqdm is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.random.default_rng(0).uniform(-2, 2, (1000, 2))
    >>> y = np.where(np.sum(x**2, axis=1) < 2, "inside", "outside")
    >>> phi = ka.random_features(ka.kernels.Gaussian(), dim=2, num_features=64, rng=0)
    >>> fit = ka.solvers.logistic(phi, x, y, ridge=1e-2)
    >>> fit.predict(np.array([[0.0, 0.1], [1.5, 1.5]])).tolist()
    ['inside', 'outside']
    """
    instance_of("phi", phi, FeatureMap)
    ridge, tolerance = positive_number("ridge", ridge), positive_number("tolerance", tolerance)
    positive_integer("max_iterations", max_iterations)
    blocks = _blocks(phi, x, y, weights)
    classes = _classes(blocks)
    wanted = classes[1:] if len(classes) == 2 else classes
    with bar("logistic", progress, unit="step") as shown_steps:
        problem = _Problem(phi, blocks, ridge, boolean("intercept", intercept), backend, shown_steps)
        fits = [_newton(problem, label, tolerance, max_iterations) for label in wanted]
    found = np.stack([fit.found for fit in fits], axis=1)
    steps, converged = max(fit.steps for fit in fits), all(fit.converged for fit in fits)
    return Logistic(phi, classes, ridge, steps, converged, frozen(found[:-1]), frozen(found[-1]))


class _Problem(NamedTuple):
    phi: FeatureMap
    blocks: Blocks
    ridge: float
    intercept: bool
    backend: str | None
    shown: Any  # a bar, or None

    def at(self, point: Float64, label: Any) -> tuple[float, Float64, Float64]:
        """Return the sum, its gradient (M + 1,) and its Hessian at weights and an intercept, for one class."""
        loss, total = 0.5 * self.ridge * float(point[:-1] @ point[:-1]), None
        for x, y, weights in self.blocks():
            score = to_numpy64(projections(self.phi, x, point[:-1, None], -point[-1:], self.backend))[:, 0]
            hit, chance = y == label, special.expit(score)
            share = np.ones(len(score)) if weights is None else weights
            loss += float(share @ np.logaddexp(0.0, np.where(hit, -score, score)))
            curvature = np.maximum(chance * special.expit(-score), LEAST)
            apart = np.where(hit, special.expit(-score), -chance) / curvature
            numbers = x.data if sparse.issparse(x) else x
            xp = namespace(x=numbers)
            values = [constant(xp, a, widest(xp, numbers), numbers) for a in (apart, share * curvature)]
            part = moments(self.phi, x, values[0], weights=values[1], backend=self.backend)
            total = part if total is None else total + part
        assert total is not None
        penalty = np.append(np.full(len(point) - 1, self.ridge), 0.0)
        gradient = penalty * point - np.append(total.cross[:, 0], total.y_sum)
        hessian = np.block([[total.gram, total.s[:, None]], [total.s[None, :], np.array([[total.weight]])]])
        if not self.intercept:
            gradient[-1], hessian[-1], hessian[:, -1], hessian[-1, -1] = 0.0, 0.0, 0.0, 1.0
        if self.shown is not None:
            self.shown.update()
        return loss, gradient, hessian + np.diag(penalty)


class _Fit(NamedTuple):
    found: Float64
    steps: int
    converged: bool


def _newton(problem: _Problem, label: Any, tolerance: float, most: int) -> _Fit:
    """Return the least point of a class, by damped steps."""
    first = next(problem.blocks())[0]
    point = np.zeros(problem.phi.num_features_of(first.shape[1]) + 1)
    loss, gradient, hessian = problem.at(point, label)
    for step in range(1, most + 1):
        direction = -_solved(hessian, gradient, problem.ridge)
        slope = float(gradient @ direction)  # minus the square of Newton's decrement
        part = 1.0
        for _ in range(HALVINGS):
            here = point + part * direction
            at_here = problem.at(here, label)
            if at_here[0] <= loss + DECREASE * part * slope + 8 * float(np.finfo(float).eps) * loss:
                break
            part /= 2
        end = -slope <= tolerance * loss
        point, (loss, gradient, hessian) = here, at_here
        if end:
            return _Fit(point, step, True)
    return _Fit(point, most, False)


def _solved(hessian: Float64, gradient: Float64, ridge: float) -> Float64:
    if not hessian[-1, -1] > 0:
        raise ParameterError("weights must not be 0 in all rows")
    try:
        found: Float64 = cho_solve(cho_factor(hessian, lower=True), gradient)
    except np.linalg.LinAlgError:
        rounding = float(np.finfo(float).eps * np.linalg.norm(hessian))
        raise ParameterError(
            f"ridge must be well above the rounding of the sums over rows, {rounding:.3g}; got {ridge:g}"
        ) from None
    return found


def _blocks(phi: FeatureMap, x: Any, y: Any, weights: Any) -> Blocks:
    """Return what walks over blocks of rows, labels and weights, which are checked as they come."""
    if hasattr(x, "shape"):
        if y is None:
            raise ParameterError("y must be given: labels (n,); got None")
        return lambda: iter([_checked(phi, x, y, weights)])
    if y is not None or weights is not None:
        raise ParameterError("y and weights must be in the blocks, (x, y) or (x, y, weights), where x is no array")
    if not callable(x) and (not isinstance(x, Iterable) or iter(x) is x):
        raise ParameterError(
            f"x must be an array, or blocks that can be walked again, as a list or a function; got {shown(x)}"
        )

    def walk() -> Iterator[tuple[Array, NDArray[Any], Float64 | None]]:
        given = x() if callable(x) else x
        if not isinstance(given, Iterable):
            raise ParameterError(f"the function x must return an iterable of blocks; got {shown(given)}")
        for block in given:
            if not isinstance(block, tuple) or len(block) not in (2, 3):
                raise ParameterError(f"a block must be (x, y) or (x, y, weights); got {shown(block)}")
            yield _checked(phi, *block)

    return walk


def _checked(phi: FeatureMap, x: Any, y: Any, weights: Any = None) -> tuple[Array, NDArray[Any], Float64 | None]:
    check_map_takes(phi, x)
    labels = np.asarray(y if isinstance(y, (list, tuple)) or y is None else _on_host(y))
    if len(x.shape) != 2 or labels.shape != (x.shape[0],):
        raise ShapeError(f"x and y must be (n, d) and (n,); got shapes {tuple(x.shape)} and {labels.shape}")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        refuse("y must be finite", np.flatnonzero(~np.isfinite(labels)), "NaN or infinity")
    check_finite("x", *((x.data, x.indptr) if sparse.issparse(x) else (x,)))
    if weights is not None:
        namespace(weights=weights)
        check_beside("weights", weights, len(labels), columns=False)
    shares = None if weights is None else to_numpy64(weights)
    if shares is not None:
        good = np.isfinite(shares) & (shares >= 0)
        if not good.all():
            refuse("weights must be 0 or more", np.flatnonzero(~good), "another number")
    return x, labels, shares


def _on_host(y: Any) -> NDArray[Any]:
    """Return labels on the host; arrays of numbers by their own library."""
    if isinstance(y, np.ndarray) or not hasattr(y, "dtype"):
        return np.asarray(y)
    return np.asarray(y.get() if hasattr(y, "get") else y)


def _classes(blocks: Blocks) -> NDArray[Any]:
    found = [_sorted(labels) for _, labels, _ in blocks()]
    if not found:
        raise EmptyInputError("blocks must hold rows; there was no block")
    classes = _sorted(np.concatenate(found))
    if len(classes) < 2:
        raise ParameterError(f"y must hold two classes or more; got {shown(classes.tolist())}")
    return classes


def _sorted(labels: NDArray[Any]) -> NDArray[Any]:
    try:
        return np.unique(labels)
    except TypeError as error:
        raise DTypeError("y must hold numbers, booleans or strings, all of one kind") from error
