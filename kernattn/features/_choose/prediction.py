"""What errors a map will make on data, before it sees them."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from kernattn._array import Float64
from kernattn.errors import NoClosedForm
from kernattn.features._data import sampled_pairs
from kernattn.features._spectral.map import RandomFeatureMap
from kernattn.kernels import Kernel
from kernattn.projections import Iid

__all__ = ["Prediction", "pair_weights", "predict"]


class Prediction(NamedTuple):
    """The predicted squared error, a weighted sum over pairs; `of_iid` where it is that of iid frequencies instead."""

    error: float
    of_iid: bool


def pair_weights(kernel: Kernel, data: Float64) -> Float64:
    r"""Return what the squared error of each sampled pair counts for, (s, s).

    Attention divides every row of the softmax kernel by its sum, and queries are not their own keys: there it is
    :math:`1 / \sum_{j \ne i} k(x_i, x_j)^2` off the diagonal. For other kernels it is 1.
    """
    x, y = sampled_pairs(data)
    exact = kernel.pairs(x, y)
    if not kernel.attention_weights:
        return np.ones_like(exact)
    off = 1.0 - np.eye(len(exact)) if len(exact) > 1 else np.ones_like(exact)
    return np.asarray(off / np.sum(off * exact**2, axis=-1, keepdims=True))


def predict(phi: RandomFeatureMap, data: Float64) -> Prediction:
    """Predict variance plus squared bias, a weighted sum over pairs of rows of data (n, d).

    They are those of iid frequencies where the projection's are unknown; infinite where these are too, and beyond the
    range of float64.
    """
    x, y = sampled_pairs(data)
    with np.errstate(over="ignore", invalid="ignore"):
        weights = pair_weights(phi.kernel, data)
        try:
            error, of_iid = float(np.sum(weights * (phi.variance(x, y) + phi.bias(x, y) ** 2))), False
        except NoClosedForm:
            error, of_iid = _of_iid(phi, x, y, weights), True
    return Prediction(error if np.isfinite(error) else np.inf, of_iid)


def _of_iid(phi: RandomFeatureMap, x: Float64, y: Float64, weights: Float64) -> float:
    try:
        return float(np.sum(weights * replace(phi, projection=Iid()).variance(x, y)))
    except NoClosedForm:
        return np.inf
