"""Randomness: SPEC 7 `rng` arguments, drawn on the host in float64 whatever the backend."""

from numbers import Integral
from typing import Any, TypeAlias

import numpy as np

from kernattn._runtime.checks import shown
from kernattn.errors import ParameterError

RNG: TypeAlias = int | np.random.SeedSequence | np.random.Generator | None


def generator(rng: RNG) -> np.random.Generator:
    """Return the generator that `rng` stands for: None (fresh entropy), a seed, a SeedSequence or a Generator."""
    if isinstance(rng, np.random.Generator):
        return rng
    seed: Any = rng
    is_number = isinstance(seed, Integral) and not isinstance(seed, bool)
    if not (seed is None or isinstance(seed, np.random.SeedSequence) or (is_number and int(seed) >= 0)):
        raise ParameterError(
            f"rng must be None, a non-negative integer, a numpy.random.SeedSequence or a Generator; got {shown(rng)}"
        )
    source: np.random.Generator = np.random.default_rng(seed)
    return source
