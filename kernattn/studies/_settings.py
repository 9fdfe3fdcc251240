"""What a study sweeps: the settings, their presets, and the check that comes before any work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, final

from kernattn.errors import ParameterError
from kernattn.features import estimators
from kernattn.kernels import Softmax
from kernattn.projections import PROJECTIONS

__all__ = ["Cell", "Settings", "preset"]

PAIRS = 32768  # kernel entries that a cell keeps of every redraw


@final
@dataclass(frozen=True)
class Cell:
    """One record's place in the sweep."""

    dataset: str
    estimator: str
    projection: str
    m: int

    @property
    def name(self) -> str:
        """The cell's name, which also names its random streams."""
        return f"{self.dataset}/{self.estimator}/{self.projection}/{self.m}"


@final
@dataclass(frozen=True)
class Settings:
    """Everything that the records of an attention study depend on, besides the tokens.

    Parameters
    ----------
    sources : tuple of str
        Names of the shipped tokens; empty where the user brings their own.
    scales : tuple of float
        Factors on queries and keys; the logits grow with their square.
    estimators, projections : tuple of str
        Names of the softmax kernel's estimators and of `kernattn.projections.PROJECTIONS`.
    num_features : tuple of int
        Output dimensions m.
    draws : int
        Redraws of the map in every cell; 6 are the fewest that bound a median with 95% confidence.
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
    queries: int = 64
    keys: int = 512
    seed: int = 0

    def __post_init__(self) -> None:
        _check_names("estimators", self.estimators, estimators(Softmax()))
        _check_names("projections", self.projections, PROJECTIONS)
        _check_list("m", self.num_features)
        _check_list("scales", self.scales)
        for m in self.num_features:
            if m < 2 or m % 2:
                raise ParameterError(f"m must be even and at least 2, for pairs count two features; got {m}")
        for scale in self.scales:
            if not (isfinite(scale) and scale > 0):
                raise ParameterError(f"scales must be finite and above 0; got {scale}")
        for name, number, least in (
            ("draws", self.draws, 6),
            ("queries", self.queries, 1),
            ("keys", self.keys, 2),
            ("seed", self.seed, 0),
        ):
            if number < least:
                raise ParameterError(f"{name} must be at least {least}; got {number}")

    def cells(self, datasets: Sequence[str]) -> list[Cell]:
        """Return every cell of the sweep, dataset by dataset."""
        return [
            Cell(dataset, estimator, projection, m)
            for dataset in datasets
            for estimator in self.estimators
            for projection in self.projections
            for m in self.num_features
        ]


def preset(quick: bool = False, **given: Any) -> Settings:
    """Return the default settings, or the quick ones, with what was given in place of theirs."""
    small: dict[str, Any] = {
        "sources": ("china", "flower"),
        "scales": (0.5, 2.0),
        "num_features": (16, 64),
        "draws": 8,
        "queries": 32,
        "keys": 128,
    }
    return replace(Settings(), **((small if quick else {}) | given))


def _check_list(name: str, values: Sequence[Any]) -> None:
    if not values:
        raise ParameterError(f"{name} must name at least one value")
    if len(set(values)) < len(values):
        raise ParameterError(f"{name} must not repeat a value; got {', '.join(map(str, values))}")


def _check_names(name: str, values: Sequence[str], allowed: Sequence[str] | dict[str, Any]) -> None:
    _check_list(name, values)
    for value in values:
        if value not in allowed:
            raise ParameterError(f"{name} must be among {', '.join(allowed)}; got {value!r}")
