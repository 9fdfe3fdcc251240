"""Which map of a kernel that has a spectral measure."""

from copy import deepcopy
from typing import Any

from kernattn._runtime.checks import check_room, one_of
from kernattn.errors import ParameterError
from kernattn.features._base.map import FeatureMap
from kernattn.features._choose.estimator import Request
from kernattn.features._choose.ranking import measure_until_decided, predict
from kernattn.features._choose.sample import draw_sample, redraw_seeds
from kernattn.features._choose.table import ESTIMATORS, draw, rows_of
from kernattn.features._choose.targets import TARGETS
from kernattn.features._spectral.spectra import spectrum
from kernattn.kernels import Kernel
from kernattn.projections import NORM_LAWS, Projection

ROW = 64  # bytes that a frequency takes at least: its norm, its phase, its place among the others


def spectral_estimators(kernel: Kernel) -> tuple[str, ...]:
    """Return the rows' names, the usual one first: for attention, whose normaliser must keep its sign, the positive."""
    usual = "positive" if kernel.attention_weights else "trigonometric"
    return tuple(sorted(rows_of(kernel), key=lambda name: name != usual))


def spectral_features(request: Request) -> FeatureMap:
    """Return the map of the estimator that is asked for; by "auto" the first possible one, or with data the best."""
    check_room("frequencies", (request.num_features,), ROW)
    spectrum(request.kernel, request.projection)
    request.kernel.input_scale(request.dim)
    if request.estimator != "auto":
        return draw(request, request.estimator)
    if request.data is None:
        return draw(request, _possible(request)[0])
    objective = objective_of(request.kernel, request.objective)
    return draw(request, _best(request._replace(objective=objective)))


def objective_of(kernel: Kernel, given: str | None, of_attention: bool = False) -> str:
    """Return whose errors count: attention's where it divides the kernel's rows, unless a user says.

    Raise where it is the kernel's and something was given that only attention has.
    """
    usual = "attention" if kernel.attention_weights else "kernel"
    objective = usual if given is None else one_of("objective", given, TARGETS)
    if objective == "kernel" and of_attention:
        raise ParameterError("values and causal are for objective 'attention'; the objective is 'kernel'")
    return objective


def _best(request: Request) -> str:
    """Return the name of the first row of `recommend` for this projection."""
    assert request.data is not None
    assert request.objective is not None
    maps, sample = candidates(request), draw_sample(request.data, request.rng, request.values, request.causal)
    target = TARGETS[request.objective](request.kernel, sample)
    if request.objective == "kernel":
        return min(maps, key=lambda name: predict(maps[name], target).error)
    measured = measure_until_decided(maps, target, redraw_seeds(request.rng))
    return min(maps, key=lambda name: measured[name].error)


def candidates(request: Request) -> dict[str, Any]:
    """Draw a map of every estimator that the kernel, the projection and the number of features allow.

    Each is what the generator would give to it alone, and the generator stays as it was: estimators know nothing of
    each other.
    """
    spectrum(request.kernel, request.projection)
    return {name: draw(request._replace(rng=deepcopy(request.rng)), name) for name in sorted(_possible(request))}


def _possible(request: Request) -> list[str]:
    """Return the names that "auto" may take; raise where there is none.

    Maps of queries and of keys are for attention of a pair: elsewhere one map must do. A phase is for where no pairs of
    cosine and sine can be, which have less variance.
    """
    spec, number, data = request.projection, request.num_features, request.data
    apart = request.objective == "attention" and data is not None and data.apart
    names = []
    for name in spectral_estimators(request.kernel):
        row = ESTIMATORS[name]
        fits = not (row.paired and number % 2) and not (row.normal and spec.law() != NORM_LAWS["chi"])
        if (row.shared or apart) and fits and _has_size(spec, row.frequencies(number), request.dim):
            names.append(name)
    if not names:
        spec.blocks(number, request.dim)
    return [name for name in names if name != "phase" or "trigonometric" not in names]


def _has_size(spec: Projection, frequencies: int, dim: int) -> bool:
    try:
        return bool(spec.blocks(frequencies, dim))
    except ParameterError:
        return False
