"""Checks of plain parameters; the errors name what was given and what is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

import numpy as np

from kernattn.errors import ParameterError

__all__ = ["finite_number", "one_of", "positive_integer", "positive_number"]


def positive_integer(name: str, value: Any) -> int:
    """Return `value` as an int, which must be a positive integer."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < 1:
        raise ParameterError(f"{name} must be a positive integer; got {value!r}")
    return int(value)


def one_of(name: str, value: Any, allowed: Iterable[str]) -> str:
    """Return `value`, which must be one of the allowed names."""
    names = tuple(allowed)
    if not isinstance(value, str) or value not in names:
        raise ParameterError(f"{name} must be one of {', '.join(names)}; got {value!r}")
    return value


def finite_number(name: str, value: Any) -> float:
    """Return `value` as a float, which must be a finite real number."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real) or not np.isfinite(float(value)):
        raise ParameterError(f"{name} must be a finite number; got {value!r}")
    return float(value)


def positive_number(name: str, value: Any) -> float:
    """Return `value` as a float, which must be a positive finite real number."""
    if finite_number(name, value) <= 0:
        raise ParameterError(f"{name} must be a positive number; got {value!r}")
    return float(value)
