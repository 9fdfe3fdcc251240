"""Which map for which data, and why."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from kernattn._arrays.namespaces import Array, without_warnings
from kernattn._arrays.plain import on_plain
from kernattn._runtime.checks import boolean, positive_integer, shown
from kernattn._runtime.deprecated import old_order
from kernattn._runtime.elsewhere import told_keywords
from kernattn._runtime.random import RNG, generator
from kernattn.errors import ParameterError
from kernattn.features._choose.estimator import Request
from kernattn.features._choose.families import check_kernel
from kernattn.features._choose.fit import LEARNED, arrangement, asked_of, attempt, data_of, share_out
from kernattn.features._choose.ranking import measure_until_decided, predict
from kernattn.features._choose.sample import REDRAWS, Sample, check_values, draw_sample, redraw_seeds
from kernattn.features._choose.spectral import candidates, objective_of
from kernattn.features._choose.table import ESTIMATORS
from kernattn.features._choose.targets import TARGETS
from kernattn.features._data import check_inputs, check_size
from kernattn.features._spectral.spectra import check_spectrum
from kernattn.kernels import Kernel
from kernattn.projections import PROJECTIONS, Projection, resolve

KINDS = "independent numbers", "the keys"  # attention's values where none are given
_OF_DATA = "fitted to three quarters of the rows, a quarter of which were its judge"
_OF_IID = "; predicted for iid frequencies"


class Choice(NamedTuple):
    """One row of the table. Errors are relative root mean squares over rows, see `recommend`.

    Attributes
    ----------
    estimator : str
        Name of the estimator.
    projection : Projection
        The projection.
    error : float
        What the rows are ranked by: `measured` for attention, `predicted` for the kernel.
    predicted : float
        The expected error by closed form, of attention to first order; infinite where it is not known or beyond the
        floats.
    measured : float
        The typical error of a draw, the geometric mean over redraws.
    standard_error : float
        Of `measured`, over the redraws.
    low, high : float
        The 95 % interval of `measured`, Student's of the logarithms.
    over_uniform_each : tuple of float, or None
        The low end of such an interval of the error over uniform attention's, of the values given; without values two,
        of independent ones and of the keys. None where the objective is the kernel.
    reason : str
        What the error comes from; the variances in it are those of one pair at the median.
    """

    estimator: str
    projection: Projection
    error: float
    predicted: float
    measured: float
    standard_error: float
    low: float
    high: float
    over_uniform_each: tuple[float, ...] | None
    reason: str

    @property
    def over_uniform(self) -> float | None:
        """The least of `over_uniform_each`; 0 where uniform attention is exact."""
        return None if self.over_uniform_each is None else min(self.over_uniform_each, default=0.0)


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
    objective : str
        "attention" or "kernel": whose errors they are.
    queries, keys : int
        Numbers of rows that were looked at.
    sum_squared, difference_squared : float
        Medians of ``|x + y|^2`` and ``|x - y|^2`` over queries x and keys y, in the kernel's own scale.
    uniform : float or None
        The error of uniform attention, every key alike; None where the objective is the kernel.
    """

    choices: tuple[Choice, ...]
    num_features: int
    objective: str
    queries: int
    keys: int
    sum_squared: float
    difference_squared: float
    uniform: float | None

    @property
    def best(self) -> Choice:
        """The first row."""
        return self.choices[0]

    @property
    def hopeless(self) -> bool:
        """Is the 95 % interval of every map's error of attention above uniform's, without values for both kinds?"""
        return all(choice.over_uniform is not None and choice.over_uniform > 1 for choice in self.choices)

    @property
    def _hopeless_values(self) -> list[str]:
        """Kinds of values for which no map is better than uniform attention, where none were given."""
        ends = list(zip(*(choice.over_uniform_each or () for choice in self.choices), strict=True))
        return [name for name, low in zip(KINDS, ends, strict=True) if min(low) > 1] if len(ends) == len(KINDS) else []

    def __str__(self) -> str:
        """Return the table, what it means, and a reason for each estimator."""
        names = [_name_of(choice.projection) for choice in self.choices]
        width = max(map(len, ("projection", *names)))
        rows = f"{self.num_features} features, {self.queries} queries and {self.keys} keys"
        medians = f"medians |x + y|^2 = {self.sum_squared:.3g}, |x - y|^2 = {self.difference_squared:.3g}"
        lines = [f"{self.objective}: {rows}; {medians}"]
        lines.append(f"  {'estimator':<22}  {'projection':<{width}}  {'predicted':>9}   {'measured':>19}")
        reasons, mark = {}, ""
        for row, name in zip(self.choices, names, strict=True):
            reasons[row.estimator] = row.reason.removesuffix(_OF_IID)
            star = "*" if row.reason.endswith(_OF_IID) else " "
            mark = mark or star.strip()
            measured = f"{row.measured:.3g} ± {float(f'{row.standard_error:.1g}'):g}"
            lines.append(f"  {row.estimator:<22}  {name:<{width}}  {row.predicted:9.3g}{star}  {measured:>19}")
        if self.uniform is not None:
            lines.append(f"  {'uniform':<22}  {'':<{width}}  {'':9}   {f'{self.uniform:.3g}':>19}")
            reasons["uniform"] = "every key alike"
        redraws, ranked = f"{REDRAWS[0]}", "predicted"
        if self.objective == "attention":
            redraws, ranked = f"{REDRAWS[0]} to {REDRAWS[-1]}", "measured"
        lines.append(
            f"Errors are relative, root mean square; measured: the typical one of {redraws} redraws. "
            f"Ranked by what is {ranked}."
        )
        lines += [f"{mark} predicted for iid frequencies"] * bool(mark)
        lines += [f"  {name:<22}  {reason}" for name, reason in reasons.items()]
        if not self.hopeless:
            lines += [
                f"With {name} as values no map is better than uniform attention: give values= to judge by yours."
                for name in self._hopeless_values
            ]
        else:
            lines.append(
                "No map is better than uniform attention: the 95 % interval of each lies above it. "
                "Take exact attention, or more features."
            )
            if all(choice.estimator in ESTIMATORS and ESTIMATORS[choice.estimator].shared for choice in self.choices):
                lines.append("Maps of queries and of keys were not compared: they need data=(queries, keys).")
        return "\n".join(lines)


@told_keywords
@old_order(Kernel, "kernel")
@on_plain
def recommend(
    data: Array | tuple[Array, Array],
    kernel: Kernel,
    num_features: int,
    projections: Sequence[str | Projection] = ("iid", "orthogonal"),
    rng: RNG = None,
    *,
    objective: str | None = None,
    values: Array | None = None,
    causal: bool = False,
    learned: bool = False,
) -> Recommendation:
    r"""Rank estimators by attention's measured :math:`\sum_i |\hat o_i - o_i|^2 / \sum_i |o_i|^2`, or the kernel's.

    Attention is :math:`o_i = \sum_j A_{ij} v_j`, :math:`A_{ij} = k(q_i, k_j) / Z_i`,
    :math:`Z_i = \sum_j k(q_i, k_j)`. Without values the error is the geometric mean of two: that of independent
    standard normal values, in expectation :math:`\sum_{ij} (\hat A_{ij} - A_{ij})^2 / \sum_{ij} A_{ij}^2`, and that of
    the keys as values, for values are functions of tokens, and then errors of neighbours cancel. Redraws of each map
    are measured, on the same draws, 8 of them, and up to 512 while the least error could be another map's by 5 % of its
    square; the one whose geometric mean is least comes first. A map that is surely worse, by three standard errors,
    is redrawn no more: its error is that of the best one, by their ratio on common draws. Maps that may be better than
    uniform attention are redrawn, as often at most, until one is, or none can be. Beside it stands a
    prediction to first order, :math:`\sum_{ij} E\,\delta_{ij}^2 |v_j - o_i|^2 / Z_i^2` over the same sum, with
    :math:`\delta = \phi(q)^T \phi(k) - k(q, k)`: it leaves out what the errors of
    a row have in common, and that a normaliser can vanish.

    The kernel's error is :math:`\sum_{ij} E\,\delta_{ij}^2 / \sum_{ij} k_{ij}^2`, the expectation in closed form,
    variance plus squared bias (see `FeatureMap.variance`): a few redraws do not show the tails of exponential features.
    For a kernel that serves attention, every row counts equally. Errors are printed as square roots.

    Up to 64 queries and 512 keys are drawn from the data, whatever its size, and the redraws, by `rng`; none depends on
    which estimators there are. ``random_features(..., estimator="auto", data=data)`` draws the best one of its
    projection.

    Parameters
    ----------
    data : (n, d) array or pair of such
        Inputs as they will come: a tuple (queries, keys), whose pairs of a query and a key count, or rows that stand
        for both, each with each and with itself. Of a pair, attention's errors are those of "favor_sharp_asymmetric"
        too, which has a map of queries and one of keys.
    kernel : Kernel
        A kernel that has a spectral measure: Softmax, Gaussian, Matern and others, see `kernattn.random_features`.
    num_features : int
        Number M of features; where it is odd, estimators that make pairs are left out. "phase" is compared where
        "trigonometric", which has less variance, cannot be.
    projections : sequence of str or Projection
        The projections to compare; those that the kernel cannot take are left out. Closed forms of "moment_matched"
        take seconds of CPU time each.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Source of the rows and redraws, left as it was.
    objective : {"attention", "kernel"}, optional
        Whose errors; by default attention's where the kernel serves attention, as Softmax does, the kernel's elsewhere.
    values : (l, e) array, optional
        Attention's values, a row for each key.
    causal : bool
        Whether query i sees the keys up to i only; there are as many queries as keys then.
    learned : bool
        Whether a map that `kernattn.features.fit` learns is compared too, which takes seconds. A quarter of the rows is
        kept then, and all maps are judged on these: those that data shapes, and the fit, have not seen them. The fit is
        the row "learned", without a prediction; where it is worse than a random map by its own judge there is none.

    Returns
    -------
    Recommendation
        The table, frozen; its `str` says why.

    Raises
    ------
    ParameterError
        If the kernel has no spectral measure, projections is no sequence of which it can take one, the objective is
        none, values are all 0, or values or causal are given for the kernel's errors.
    ShapeError
        If data is not (n, d) or a pair of such, values have not a row for each key, or causal queries are not as many
        as keys.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x = np.random.default_rng(0).standard_normal((50, 8))
    >>> table = ka.features.recommend(x, ka.kernels.Gaussian(lengthscale=4.0), num_features=32, rng=0)
    >>> table.best.estimator, table.best.projection
    ('trigonometric', Orthogonal(method='qr', norms='chi'))
    >>> table = ka.features.recommend((x, x[::-1]), ka.kernels.Softmax(), num_features=64, values=x, rng=0)
    >>> table.best.measured < table.uniform, table.hopeless
    (True, False)
    """
    check_kernel(kernel)
    check_spectrum(kernel)
    specs: object = projections
    if not isinstance(specs, list | tuple):
        raise ParameterError(f"projections must be a tuple or list of names or specs; got {shown(specs)}")
    given, number, source = check_inputs(data), positive_integer("num_features", num_features), generator(rng)
    goal = objective_of(kernel, objective, boolean("causal", causal) or values is not None)
    rows_of_values, dim = check_values(values, given, causal), given.queries.shape[1]
    check_size(given.rows, kernel.input_scale(dim))
    fitted = None
    if boolean("learned", learned):
        shared, source = given.queries is given.keys, deepcopy(source)
        seen, held = share_out(given, rows_of_values, source)
        request = Request(kernel, dim, number, LEARNED, arrangement(kernel), data_of(seen, shared), source, goal)
        made = attempt(asked_of(request._replace(values=seen[2], causal=causal)))
        fitted = made.fitted if made.helps else None
        given, rows_of_values = data_of(held, shared), held[2]
    shaped = given if not learned else data_of(seen, shared)
    sample, seeds = draw_sample(given, source, rows_of_values, causal), redraw_seeds(source)
    target, (v2, z2) = TARGETS[goal](kernel, sample), _medians(kernel, sample)
    choices, refusal = [], ParameterError(f"projections must hold at least one; got {shown(projections)}")
    for spec in map(resolve, projections):
        try:
            maps = candidates(Request(kernel, dim, number, "auto", spec, shaped, source, goal))
        except ParameterError as error:
            refusal = error
            continue
        measurements = measure_until_decided(maps, target, seeds, decides=goal == "attention", tells=True)
        for name, phi in maps.items():
            prediction, measured = predict(phi, target), measurements[name]
            predicted = prediction.error**0.5
            reason = ESTIMATORS[name].reason(kernel, _exp(v2) / number, _exp(z2) / number)
            reason += prediction.of_iid * _OF_IID
            ranked = measured.error if goal == "attention" else predicted
            choices.append(Choice(name, spec, ranked, predicted, *measured, reason))
    if not choices:
        raise refusal
    if fitted is not None:
        (measured,) = measure_until_decided({LEARNED: fitted}, target, seeds, decides=False).values()
        choices.append(Choice(LEARNED, arrangement(kernel), measured.error, np.inf, *measured, _OF_DATA))
    return Recommendation(
        tuple(sorted(choices, key=lambda choice: choice.error)),
        number,
        goal,
        len(sample.queries),
        len(sample.keys),
        v2,
        z2,
        None if target.uniform is None else target.uniform**0.5,
    )


@without_warnings
def _medians(kernel: Kernel, sample: Sample) -> tuple[float, float]:
    """Return the medians of |x' + y'|^2 and |x' - y'|^2 over queries and keys."""
    scale = kernel.input_scale(sample.queries.shape[1])
    q, k = sample.queries * scale, sample.keys * scale
    squares, products = np.sum(q**2, axis=-1)[:, None] + np.sum(k**2, axis=-1), 2 * q @ k.T
    return float(np.median(np.maximum(squares + products, 0.0))), float(np.median(np.maximum(squares - products, 0.0)))


def _name_of(projection: Projection) -> str:
    """Return the name that stands for a projection, or what makes it where it has options of its own."""
    names = (name for name, kind in PROJECTIONS.items() if type(projection) is kind and projection == kind())
    return next(names, repr(projection))


def _exp(value: float) -> float:
    return float(np.exp(min(value, 700.0)))
