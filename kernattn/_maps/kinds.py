"""The nonlinearities of maps: a kind is one row, and every implementation of every op reads the table."""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

from kernattn._arrays.namespaces import Array


@dataclass(frozen=True)
class Kind:
    """A nonlinearity of projections u (..., n, D).

    `formula` gives the features (..., n, M) without their log scale, or the logs of features that have one each.
    """

    name: str
    number: int  # by which compiled loops know it: `_numba/kinds.py`
    formula: Callable[[ModuleType, Array], Array]
    parts: int = 1  # features of one frequency
    scale: Literal["none", "row", "feature"] = "none"  # where the log scale stands
    offset: Literal["none", "phase", "log"] = "none"  # added to u, or to the logs
    bounded: bool = False  # are the features in [-1, 1] whatever u is?
    positive: bool = False  # are they never negative, without a log scale? Rows far from 1 then get a unit of their own
    homogeneous: bool = False  # does a positive factor of u come out? Rows of any size then keep their digits
    exponential_tail: bool = False  # are they e^u where u < 0? A row that has vanished is then computed from its logs
    moderate: float = 0.0  # while every |u| is below, the features are neither large nor small
    pull: Callable[[ModuleType, Array, Array, Array, Array], Array] | None = None
    """Cotangents of u from those of the features, or of the logs: of (u, phi, one, f), phi and `one` in one unit."""

    @property
    def per_feature(self) -> bool:
        """Is there a log scale for every feature?"""
        return self.scale == "feature"


def _elu1(xp: ModuleType, u: Array) -> Array:
    return xp.where(u > 0, u + 1, xp.exp(xp.where(u > 0, xp.zeros_like(u), u)))  # at 0, min(u, 0) has half of a slope


def _relu(xp: ModuleType, u: Array) -> Array:
    return xp.where(u <= 0, xp.zeros_like(u), u)


def _cos(xp: ModuleType, u: Array) -> Array:
    return xp.cos(u)


def _sincos(xp: ModuleType, u: Array) -> Array:
    return xp.concat([xp.cos(u), xp.sin(u)], axis=-1)


def _pair(xp: ModuleType, u: Array) -> Array:
    return xp.concat([u, -u], axis=-1)


def _same(xp: ModuleType, u: Array) -> Array:
    return u


def _pull_elu1(xp: ModuleType, u: Array, phi: Array, one: Array, f: Array) -> Array:
    return f * xp.where(u > 0, one, phi)


def _pull_relu(xp: ModuleType, u: Array, phi: Array, one: Array, f: Array) -> Array:
    return f * xp.where(u > 0, one, xp.zeros_like(u))


def _pull_cos(xp: ModuleType, u: Array, phi: Array, one: Array, f: Array) -> Array:
    return -f * one * xp.sin(u)


def _pull_sincos(xp: ModuleType, u: Array, phi: Array, one: Array, f: Array) -> Array:
    half = u.shape[-1]
    return f[..., half:] * phi[..., :half] - f[..., :half] * phi[..., half:]


def _pull_pair(xp: ModuleType, u: Array, phi: Array, one: Array, f: Array) -> Array:
    half = u.shape[-1]
    return f[..., :half] - f[..., half:]


def _pull_same(xp: ModuleType, u: Array, phi: Array, one: Array, f: Array) -> Array:
    return f


TABLE = (
    Kind("elu1", 0, _elu1, positive=True, exponential_tail=True, moderate=10.0, pull=_pull_elu1),
    Kind("relu", 1, _relu, positive=True, homogeneous=True, pull=_pull_relu),
    Kind("cos", 2, _cos, scale="row", offset="phase", bounded=True, pull=_pull_cos),
    Kind("sincos", 3, _sincos, parts=2, scale="row", bounded=True, pull=_pull_sincos),
    Kind("exp", 4, _same, scale="feature", offset="log", pull=_pull_same),
    Kind("exp_pair", 5, _pair, parts=2, scale="feature", offset="log", pull=_pull_pair),
    Kind("values", 6, _same, scale="row"),
    Kind("logs", 7, _same, scale="feature"),
)
*_MAPS, VALUES, LOGS = TABLE
"""VALUES and LOGS are features that somebody computed, and their logarithms; all others are kinds of maps."""

KINDS = {kind.name: kind for kind in _MAPS}
