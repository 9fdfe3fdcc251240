"""What errors a map will make on data, before it sees them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn.errors import NoClosedForm
from kernattn.features._choose.targets import Target, geometric_mean
from kernattn.features._moments.pairs import beyond
from kernattn.features._spectral.map import RandomFeatureMap
from kernattn.projections import Iid


class Prediction(NamedTuple):
    """The predicted relative squared error; `of_iid` where it is that of iid frequencies instead."""

    error: float
    of_iid: bool


@beyond
def predict(phi: RandomFeatureMap, target: Target) -> Prediction:
    """Predict variance plus squared bias, weighted as the target weighs entries of the kernel.

    They are those of iid frequencies where the projection's are unknown; infinite where these are too, and beyond the
    range of float64.
    """
    try:
        error, of_iid = _expected(phi, target), False
    except NoClosedForm:
        of_iid = True
        try:
            error = _expected(replace(phi, projection=Iid()), target)
        except NoClosedForm:
            error = np.inf
    return Prediction(error if np.isfinite(error) else np.inf, of_iid)


def _expected(phi: RandomFeatureMap, target: Target) -> float:
    squares: list[Float64] = [phi.variance(x, y) + phi.bias(x, y) ** 2 for x, y in target.sample.pairs()]
    return geometric_mean(np.sum(target.weights * np.concatenate(squares), axis=(-2, -1)))
