"""Which map of a polynomial kernel."""

from typing import Any

import numpy as np

from kernattn._runtime.random import generator
from kernattn.features._base.map import FeatureMap
from kernattn.features._choose.estimator import Request
from kernattn.features._choose.table import ESTIMATORS, draw, rows_of
from kernattn.features._data import Data, sample_pairs
from kernattn.features._polynomial.inputs import pair_sums
from kernattn.features._polynomial.monomials import Monomials
from kernattn.projections import resolve


def polynomial_features(request: Request) -> FeatureMap:
    """Return the map of the estimator that is asked for; by "auto" the first one, or with data the best.

    With data this is the map without an error where it has so many features, else the sketch with the least variance,
    summed over pairs of a query and a key.
    """
    if request.estimator != "auto":
        return draw(request, request.estimator)
    if request.data is None:
        return draw(request, rows_of(request.kernel)[0])
    if request.num_features == Monomials(request.kernel).num_features_of(request.dim):
        return _draw(request, "exact")
    return _draw(request, _least_variance(request, request.data))


def _draw(request: Request, name: str) -> FeatureMap:
    """Draw the map; the projection is for the sketches that have one."""
    return draw(request if ESTIMATORS[name].projected else request._replace(projection=resolve("orthogonal")), name)


def _least_variance(request: Request, data: Data) -> str:
    """Return the best sketch, as told by maps of two features that know their law."""
    pairs, octaves = pair_sums(request.kernel, *sample_pairs(data.queries, data.keys))
    m, sizes = request.num_features, 2.0 ** (2 * request.kernel.degree * (octaves - np.max(octaves)))

    def predicted(name: str) -> float:
        law: Any = _draw(request._replace(num_features=2, rng=generator(0)), name)
        return float(np.sum(np.maximum(law._pair_variance(pairs, m), 0.0) * sizes))

    names = (name for name in sorted(rows_of(request.kernel)) if name != "exact")
    return min((name for name in names if m % 2 == 0 or not ESTIMATORS[name].paired), key=predicted)
