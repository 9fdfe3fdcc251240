"""Logistic regression on features: Newton's steps, each from weighted moments."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, Float64, frozen, like, to_numpy64
from kernattn._runtime.checks import boolean, instance_of, positive_integer, positive_number
from kernattn._runtime.deprecated import old_arguments, old_attribute, old_order, old_positions
from kernattn._runtime.extras import bar, has_bar
from kernattn._runtime.lazy_scipy import special
from kernattn.features import FeatureMap
from kernattn.solvers._labels import find_classes, walk_labelled
from kernattn.solvers._newton import LogisticLoss, minimise
from kernattn.solvers._spectrum import cast_as, project


@final
@dataclass(frozen=True, eq=False, repr=False)
class Logistic:
    """A fit of logistic regression.

    Its methods take rows x (..., n, d), and `backend` as `moments` does.

    Attributes
    ----------
    phi : FeatureMap
        The map.
    classes : (k,) numpy.ndarray
        The labels, sorted, of rows whose weight is not 0.
    penalty : float
        The penalty lambda.
    iterations : int
        Steps that were taken, of the class that took most.
    converged : bool
        Whether every class came to an end before `max_iterations`.
    """

    phi: FeatureMap
    classes: NDArray[Any]
    penalty: float
    iterations: int
    converged: bool
    _weights: Float64  # (M, 1) of two classes, or (M, k)
    _intercept: Float64

    ridge = old_attribute("ridge", "penalty")

    def __repr__(self) -> str:
        """Return the sizes, and whether it converged."""
        state = "converged" if self.converged else "NOT converged"
        return f"Logistic({len(self.classes)} classes, penalty={self.penalty:g}, {state}, phi={self.phi!r})"

    @property
    def weights(self) -> Float64:
        """Weights w of the features, (M,) of two classes, of which the second has them; else (M, k)."""
        return self._weights[:, 0] if len(self.classes) == 2 else self._weights

    @property
    def intercept(self) -> Float64:
        """Intercept b, () or (k,): 0 without one."""
        return self._intercept[0] if len(self.classes) == 2 else self._intercept

    def scores(self, x: Array, *, backend: str | None = None) -> Array:
        """Return phi(x)^T w + b, (..., n) of two classes, else (..., n, k), in the dtype of x."""
        values = cast_as(project(self.phi, x, self._weights, -self._intercept, backend), x)
        return values[..., 0] if len(self.classes) == 2 else values

    def predict_proba(self, x: Array, *, backend: str | None = None) -> Array:
        """Return probabilities of the classes, (..., n, k) in the dtype of x.

        Of several classes, each is that of its own fit against all others, divided by their sum.
        """
        scores = self.scores(x, backend=backend)
        host = to_numpy64(scores)
        chances = special.expit(np.stack([-host, host], axis=-1) if len(self.classes) == 2 else host)
        sums = chances.sum(axis=-1, keepdims=True)
        chances = np.divide(chances, sums, out=np.full_like(chances, 1 / len(self.classes)), where=sums > 0)
        return like(chances, scores)

    def predict(self, x: Array, *, backend: str | None = None) -> NDArray[Any]:
        """Return the likeliest labels, (..., n), on the host."""
        host = to_numpy64(self.scores(x, backend=backend))
        best = (host > 0).astype(int) if len(self.classes) == 2 else np.argmax(host, axis=-1)
        labels: NDArray[Any] = self.classes[best]
        return labels


@old_order(FeatureMap, "phi")
@old_positions("y")
@old_arguments(ridge="penalty")
def logistic(
    x: Array | Iterable[tuple[Any, ...]] | Callable[[], Iterable[tuple[Any, ...]]],
    phi: FeatureMap,
    *,
    y: Any = None,
    penalty: float,
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
    x : (n, d) array, or blocks
        Rows; or an iterable of blocks (x, y) or (x, y, weights) that can be walked again, as a list can, or a function
        that returns an iterable each time it is called.
    phi : FeatureMap
        The map.
    y : (n,) array_like
        Labels: numbers, booleans or strings. Left out where there are blocks.
    penalty : float
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

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.random.default_rng(0).uniform(-2, 2, (1000, 2))
    >>> y = np.where(np.sum(x**2, axis=1) < 2, "inside", "outside")
    >>> phi = ka.random_features(ka.kernels.Gaussian(), dim=2, num_features=64, rng=0)
    >>> fit = ka.solvers.logistic(x, phi, y=y, penalty=1e-2)
    >>> fit.predict(np.array([[0.0, 0.1], [1.5, 1.5]])).tolist()
    ['inside', 'outside']
    """
    instance_of("phi", phi, FeatureMap)
    penalty, tolerance = positive_number("penalty", penalty), positive_number("tolerance", tolerance)
    positive_integer("max_iterations", max_iterations)
    boolean("intercept", intercept)
    has_bar("logistic", progress)  # else what it lacks shows after a pass over the blocks
    blocks = walk_labelled(phi, x, y, weights)
    classes = find_classes(blocks)
    wanted = classes[1:] if len(classes) == 2 else classes
    with bar("logistic", progress, unit="step") as shown_steps:
        loss = LogisticLoss(phi, blocks, penalty, bool(intercept), backend, shown_steps)
        fits = [minimise(loss, label, tolerance, max_iterations) for label in wanted]
    points = np.stack([fit.point for fit in fits], axis=1)
    steps, converged = max(fit.steps for fit in fits), all(fit.converged for fit in fits)
    return Logistic(phi, classes, penalty, steps, converged, frozen(points[:-1]), frozen(points[-1]))
