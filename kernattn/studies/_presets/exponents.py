"""Exponents of power laws that records show, with intervals, and whether they are those of a claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kernattn.studies._presets.preset import word
from kernattn.studies._records import ENDS, Record

NEAR = 0.06  # how far an exponent may be from the claimed one, which is a limit
WIDE = 0.25  # an interval that goes further bears no claim out


class Exponent(NamedTuple):
    """Slope of log value over log axis, with the ends of its 95% interval."""

    value: float
    low: float
    high: float


def exponent(records: Sequence[Record], field: str, axis: str) -> Exponent:
    """Return the slope by least squares; its interval from those of the values, as if these were independent.

    Values on common random numbers vary together, so that their slope is known better than that.
    """
    value, low, high = (np.log([float(record[f"{field}{end}"]) for record in records]) for end in ENDS)
    x = np.log([float(record[axis]) for record in records])
    weights = (x - x.mean()) / np.sum((x - x.mean()) ** 2)
    slope, half = float(weights @ value), float(np.linalg.norm(weights * (high - low) / 2))
    return Exponent(slope, slope - half, slope + half)


def begins(found: Sequence[Exponent], claimed: float) -> tuple[str, int, int]:
    """Return how the verdict on a claimed exponent begins, how many are surely others, and how many cannot be told."""
    others = [each.high < claimed - NEAR or each.low > claimed + NEAR for each in found]
    wide = [max(claimed - each.low, each.high - claimed) > WIDE for each in found]
    against, undecided = sum(others), sum(w and not o for w, o in zip(wide, others, strict=True))
    return word(len(found) - against - undecided, against, undecided), against, undecided
