"""The map of an estimator: its lengthscale by targets, and a line beside it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from kernattn._arrays.csr import take_rows
from kernattn._arrays.namespaces import Array, Float64
from kernattn._runtime.checks import boolean, positive_integer, shown
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap, Transformed
from kernattn.kernels import Kernel, Stationary, Tanimoto
from kernattn.sklearn._by_labels import tune_by_log_loss
from kernattn.sklearn._by_targets import tune_by_evidence, tune_by_landmarks
from kernattn.sklearn._candidates import WIDE, Candidate, line_of, line_to_try, on_one_thread
from kernattn.sklearn._inputs import array_beside, is_named, signs_of
from kernattn.sklearn._maps import check_name, draw_map, nystrom_map, start_kernel
from kernattn.solvers import learn_metric
from kernattn.solvers._digests import distinct

LOOKED_AT = 4096  # rows that differ, among which landmarks are
SHARE = 4  # times the landmarks: of no more rows that differ, any are as good
WIDE_SETS = 4096  # columns of sets, whose random features say far less than as many landmarks
SEARCHES = "tune", "ard"  # for a lengthscale, or for one along each axis

TIMES = 1.0, 2.0, 4.0  # the usual lengthscale, in which a metric is learnt
TOLD = 50  # rows for each column: fewer are known to their metric, in which a search for a lengthscale then errs

Tune = Callable[[Stationary, bool], Candidate]  # from a kernel on, with a lengthscale for each axis or not


def draw_tuned(
    estimator: Any,
    x: Array,
    weights: Float64 | None,
    linear: bool | None,
    tune: Tune | None,
    best: Kernel | None = None,
    in_span: bool = False,
) -> FeatureMap:
    """Return the map for rows, whose targets tune a kernel, or have: the `best`. Without targets, `tune` is None.

    A line of many columns is in the rows' span where `in_span` says so.
    """
    choices = ("scale",) if tune is None else ("scale", *SEARCHES)
    kernel, how = _start(estimator, x, weights, choices)
    if how == "tune" and best is not None:
        found = Candidate(best, None if linear is False else line_of(x, weights, in_span))
    elif how in SEARCHES:
        assert tune is not None
        assert isinstance(kernel, Stationary)
        found = tune(kernel, how == "ard")
    else:
        found = Candidate(kernel, line_of(x, weights, in_span) if linear else None)

    def draw(kernel: Kernel) -> FeatureMap:
        if estimator.estimator is None and tune is not None:
            return _draw_usual(estimator, x, kernel)
        return draw_map(estimator, x, kernel, estimator.estimator)

    return found.make_map(draw)


def _start(estimator: Any, x: Array, weights: Float64 | None, choices: tuple[str, ...]) -> tuple[Kernel, str | None]:
    """Return what `start_kernel` does, of a kernel that has the estimator's map."""
    kernel, how = start_kernel(estimator.kernel, estimator.lengthscale, x, array_beside(x, weights), choices)
    if estimator.estimator is not None:
        check_name(kernel, estimator.estimator)
    return kernel, how


def _draw_usual(estimator: Any, x: Array, kernel: Kernel) -> FeatureMap:
    """Return the map of an estimator without a name: landmarks among rows that differ, or random features."""
    most = WIDE if isinstance(kernel, Stationary) else WIDE_SETS if isinstance(kernel, Tanimoto) else 0
    if x.shape[1] > most or estimator._in_parts or estimator.projection is not None:
        return draw_map(estimator, x, kernel, "auto")
    number = positive_integer("num_features", estimator.num_features)
    rows = distinct(x)[0]
    method = "uniform" if len(rows) <= SHARE * number else "rpcholesky"
    return nystrom_map(kernel, estimator, method, take_rows(x, rows[: max(LOOKED_AT, SHARE * number)]))


def draw_without_targets(estimator: Any, x: Array, weights: Float64 | None) -> FeatureMap:
    """Return the map for rows alone."""
    return draw_tuned(estimator, x, weights, False, None)


def draw_by_evidence(estimator: Any, x: Array, y: Float64, weights: Float64 | None) -> FeatureMap:
    """Return the map for rows with targets (n, c), of a Gaussian process."""
    linear = boolean("linear", estimator.linear)

    def draw(x: Array, best: Kernel | None) -> FeatureMap:
        def tune(kernel: Stationary, ard: bool) -> Candidate:
            return tune_by_evidence(kernel, ard, x, y, weights, linear)

        return draw_tuned(estimator, x, weights, linear, tune, best)

    return _in_metric(estimator, x, y, weights, draw)


def draw_for_numbers(estimator: Any, x: Array, y: Float64, weights: Float64 | None) -> FeatureMap:
    """Return the map for rows with targets (n, c) of a least squares fit."""
    linear, parts = estimator.linear, estimator._in_parts

    def draw(x: Array, best: Kernel | None) -> FeatureMap:
        def tune(kernel: Stationary, ard: bool) -> Candidate:
            if ard:
                return tune_by_evidence(kernel, ard, x, y, weights, linear, in_span=not parts)
            return tune_by_landmarks(kernel, x, y, weights, linear, in_parts=parts)

        return draw_tuned(estimator, x, weights, linear, tune, best, in_span=not parts)

    return _in_metric(estimator, x, y, weights, draw)


def draw_for_labels(
    estimator: Any,
    x: Array,
    labels: Any,
    weights: Float64 | None,
    classes: Any,
    told: Callable[[bool], object] | None = None,
) -> FeatureMap:
    """Return the map for rows with labels (n,).

    With `told`, a tuned kernel is never left out, nor the line where there may be one: `told` is then called with
    whether rows left out prefer both to the kernel alone.
    """
    linear, signs = estimator.linear, signs_of(labels, classes)

    def draw(x: Array, _: Kernel | None) -> FeatureMap:
        def tune(kernel: Stationary, ard: bool) -> Candidate:
            if ard:
                return tune_by_evidence(kernel, ard, x, signs, weights, linear, in_span=True)
            found = tune_by_log_loss(kernel, x, labels, weights, estimator.fit_intercept, linear, alone=told is None)
            line = None if told is None else line_to_try(x, weights, linear)
            if told is None or line is None:
                return found
            told(found.line is not None)
            return found._replace(line=line)

        return draw_tuned(estimator, x, weights, linear, tune, in_span=True)

    return _in_metric(estimator, x, signs, weights, draw)


def _in_metric(
    estimator: Any, x: Array, y: Float64, weights: Float64 | None, draw: Callable[[Array, Kernel | None], FeatureMap]
) -> FeatureMap:
    """Return the map that is drawn for rows, or for rows in the metric that targets choose where one is asked for.

    Where rows are few, `draw` is also told the kernel that folds chose with the metric.
    """
    estimator.metric_ = None
    if estimator.metric is None:
        return draw(x, None)
    if not is_named(estimator.metric, "learned"):
        raise ParameterError(f"metric must be None or 'learned'; got {shown(estimator.metric)}")
    kernel, how = _start(estimator, x, weights, ("scale", *SEARCHES))
    if how == "ard":
        raise ParameterError("lengthscale must not be 'ard' beside metric='learned', which has one for each column too")
    given = {"weights": array_beside(x, weights), "times": TIMES if how == "tune" else (1.0,)}
    with on_one_thread():
        found = learn_metric(x, array_beside(x, y), kernel, **given)  # type: ignore[arg-type]
    estimator.metric_ = found
    if found.form == "none":
        return draw(x, None)
    few = x.shape[0] < TOLD * x.shape[1]
    best = replace(kernel, lengthscale=found.lengthscale) if few else None  # type: ignore[type-var]
    return Transformed(draw(found.transform(x), best), found.factor)


def without_zeros(x: Array, y: Any, weights: Float64 | None) -> tuple[Array, Any, Float64 | None]:
    """Return the rows whose weight is not 0, with their targets and weights."""
    if weights is None or weights.all():
        return x, y, weights
    kept = weights.nonzero()[0]
    return take_rows(x, kept), None if y is None else y[kept], weights[kept]
