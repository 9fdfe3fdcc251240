"""Randomness: SPEC 7 `rng` arguments, drawn on the host in float64 whatever the backend."""

from __future__ import annotations

from numbers import Integral
from typing import TypeAlias

import numpy as np

from kernattn.errors import ParameterError

__all__ = ["RNG", "generator"]

RNG: TypeAlias = int | np.random.SeedSequence | np.random.Generator | None


def generator(rng: RNG) -> np.random.Generator:
    """Return the generator that `rng` stands for: None (fresh entropy), a seed, a SeedSequence or a Generator."""
    if isinstance(rng, np.random.Generator):
        return rng
    is_seed = isinstance(rng, Integral) and not isinstance(rng, bool)
    if rng is None or isinstance(rng, np.random.SeedSequence) or (is_seed and int(rng) >= 0):  # type: ignore[arg-type]
        return np.random.default_rng(rng if rng is None or isinstance(rng, np.random.SeedSequence) else int(rng))
    raise ParameterError(
        f"rng must be None, a non-negative integer, a numpy.random.SeedSequence or a numpy.random.Generator; got {rng!r}"
    )
