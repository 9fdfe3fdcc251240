"""Inputs of the cases, the map of FAVOR+, and a call on one thread."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.parallel import VARIABLE
from kernattn.bench._races import Call
from kernattn.bench._sizes import Sizes
from kernattn.features import random_features
from kernattn.kernels import Softmax


def normal(o: Sizes, *shapes: tuple[int, ...]) -> list[Float64]:
    """Return arrays of standard normal numbers, in the dtype of the sizes."""
    rng = np.random.default_rng(o.seed)
    return [rng.standard_normal(shape).astype(o.dtype) for shape in shapes]


def favor(o: Sizes) -> Any:
    """Return positive orthogonal features of the softmax kernel."""
    return random_features(Softmax(), o.dim, o.features, "positive", rng=o.seed)


def one_thread(call: Call) -> Call:
    """Return the call on one thread of ours."""

    def alone() -> Any:
        before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = "1"
        try:
            return call()
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before

    return alone
