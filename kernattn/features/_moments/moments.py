"""The moments of one term of an estimate."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn.projections import Pair


class Moments(NamedTuple):
    """Of one frequency's term t of an estimate: E t, E t^2, and E t t' for a pair of frequencies."""

    mean: Float64
    second: Float64
    cross: Callable[[Pair], Float64]


def of_even_terms(moment: Callable[[Pair], Float64], pair: Pair) -> Float64:
    """Return E t(w) t(w') of an even term, as cos a cos b = (cos(a + b) + cos(a - b)) / 2, from moments of w + w'."""
    return np.asarray(np.mean([moment(each) for each in {pair, pair.opposite}], axis=0))


def times_exp(value: Float64, log: Float64) -> Float64:
    """Return value e^log, where e^log alone may be beyond the floats."""
    plain = value * np.exp(log)
    return np.asarray(np.where(np.isfinite(plain), plain, np.sign(value) * np.exp(np.log(np.abs(value)) + log)))
