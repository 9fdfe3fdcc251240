"""What the attention study sweeps, and the check that comes before any work."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, final

from kernattn._runtime.checks import positive_number, shown
from kernattn.errors import ParameterError
from kernattn.features import estimators
from kernattn.kernels import Softmax
from kernattn.projections import PROJECTIONS
from kernattn.studies._presets.attention.own import checked_own, is_own
from kernattn.studies._sweep import integer

PAIRS = 32768  # kernel entries that a cell keeps of every redraw


@final
@dataclass(frozen=True)
class AttentionSettings:
    """Everything that the records of an attention study depend on, besides the tokens.

    Parameters
    ----------
    sources : tuple of str
        Names of the shipped tokens; empty where the user brings their own.
    scales : tuple of float
        Factors on queries and keys; the logits grow with their square.
    estimators : tuple of str
        Names of the softmax kernel's estimators; one's own are named as ``module:object``: a feature map, measured at
        its own size and under the first projection's name, or a function of `dim` and `num_features` that makes one.
    projections : tuple of str
        Names of `kernattn.projections.PROJECTIONS`.
    num_features : tuple of int
        Output dimensions m.
    draws : int
        Redraws of the map in every cell; 6 are the fewest that bound a median with 95% confidence.
    precision : float, optional
        Cells are redrawn, up to 16 times as often, until the interval of the attention error is this narrow: half of
        it, relative to the error.
    queries, keys : int
        Tokens: queries at most, and keys of the shipped tokens.
    seed : int
        Root of every random stream.
    """

    sources: tuple[str, ...] = ("china", "flower", "digits")
    scales: tuple[float, ...] = (0.5, 1.0, 2.0)
    estimators: tuple[str, ...] = ("trigonometric", "phase", "positive", "hyperbolic", "optimal_positive")
    projections: tuple[str, ...] = ("iid", "orthogonal")
    num_features: tuple[int, ...] = (16, 32, 64, 128, 256)
    draws: int = 32
    precision: float | None = None
    queries: int = 64
    keys: int = 512
    seed: int = 0

    def __post_init__(self) -> None:
        """Check what is swept, and keep plain numbers."""
        keep = partial(object.__setattr__, self)
        keep("sources", _list("sources", self.sources, partial(_name, "sources"), least=0))
        keep("scales", _list("scales", self.scales, _scale))
        keep("estimators", _list("estimators", self.estimators, _estimator))
        keep("projections", _list("projections", self.projections, partial(_among, "projections", PROJECTIONS)))
        keep("num_features", _list("m", self.num_features, _even))
        for name, least in (("draws", 6), ("queries", 1), ("keys", 2), ("seed", 0)):
            keep(name, integer(name, getattr(self, name), least))

    @classmethod
    def quick(cls, **given: Any) -> Self:
        """Return settings for seconds of work, with what was given in place of theirs."""
        small: dict[str, Any] = {
            "sources": ("china", "flower"),
            "scales": (0.5, 2.0),
            "num_features": (16, 64),
            "queries": 32,
            "keys": 128,
        }
        return cls(**(small | given))


def _list(name: str, values: Any, checked: Callable[[Any], Any], least: int = 1) -> tuple[Any, ...]:
    """Return values, a tuple or a list, checked one by one."""
    if not isinstance(values, tuple | list):
        raise ParameterError(f"{name} must be a tuple; got {shown(values)}")
    if len(values) < least:
        raise ParameterError(f"{name} must name at least one value")
    found = tuple(map(checked, values))
    if len(set(found)) < len(found):
        raise ParameterError(f"{name} must not repeat a value; got {', '.join(map(str, found))}")
    return found


def _name(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ParameterError(f"{name} must be names; got {shown(value)}")
    return value


def _among(name: str, allowed: Collection[str], value: Any) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise ParameterError(f"{name} must be among {', '.join(allowed)}; got {shown(value)}")
    return value


def _estimator(value: Any) -> str:
    if isinstance(value, str) and is_own(value):
        return checked_own(value)
    return _among("estimators", estimators(Softmax()), value)


def _scale(value: Any) -> float:
    try:
        return positive_number("scales", value)
    except ParameterError:
        raise ParameterError(f"scales must be finite and above 0; got {shown(value)}") from None


def _even(value: Any) -> int:
    if (m := integer("m", value, 2)) % 2:
        raise ParameterError(f"m must be even and at least 2, for pairs count two features; got {m}")
    return m
