"""Which map of a polynomial kernel."""

from copy import deepcopy

from kernattn.features._base.map import FeatureMap
from kernattn.features._choose.estimator import Request
from kernattn.features._choose.ranking import measure_until_decided
from kernattn.features._choose.sample import draw_sample, redraw_seeds
from kernattn.features._choose.table import ESTIMATORS, draw, rows_of
from kernattn.features._choose.targets import KernelTarget
from kernattn.features._data import Data
from kernattn.features._polynomial.monomials import Monomials
from kernattn.projections import resolve


def polynomial_features(request: Request) -> FeatureMap:
    """Return the map of the estimator that is asked for; by "auto" the first one, or with data the best.

    With data this is the map without an error where it has so many features, else the sketch whose typical error is
    least over pairs of a query and a key.
    """
    if request.estimator != "auto":
        return draw(request, request.estimator)
    if request.data is None:
        return draw(request, rows_of(request.kernel)[0])
    if request.num_features == Monomials(request.kernel).num_features_of(request.dim):
        return _draw(request, "exact")
    return _draw(request, _typically_best(request, request.data))


def _draw(request: Request, name: str) -> FeatureMap:
    """Draw the map; the projection is for the sketches that have one."""
    return draw(request if ESTIMATORS[name].projected else request._replace(projection=resolve("orthogonal")), name)


def _typically_best(request: Request, data: Data) -> str:
    """Return the sketch whose typical error is least: of high degrees the expected one is that of draws hardly seen."""
    even = request.num_features % 2 == 0
    names = [n for n in sorted(rows_of(request.kernel)) if n != "exact" and (even or not ESTIMATORS[n].paired)]
    maps = {name: _draw(request._replace(rng=deepcopy(request.rng)), name) for name in names}
    target = KernelTarget(request.kernel, draw_sample(data, request.rng))
    measured = measure_until_decided(maps, target, redraw_seeds(request.rng))
    return min(maps, key=lambda name: measured[name].error)
