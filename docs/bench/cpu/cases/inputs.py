"""Inputs of the cases, maps, and a call on one thread."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np

from bench.sizes import Sizes
from kernattn._arrays.namespaces import Float64
from kernattn._runtime.parallel import VARIABLE
from kernattn.bench._clock import Call
from kernattn.features import Fitted, elu1, random_features
from kernattn.kernels import Softmax


def normal(o: Sizes, *shapes: tuple[int, ...]) -> list[Float64]:
    """Return arrays of standard normal numbers, in the dtype of the sizes."""
    rng = np.random.default_rng(o.seed)
    return [rng.standard_normal(shape).astype(o.dtype) for shape in shapes]


def heads(o: Sizes, count: int = 3) -> list[Any]:
    """Return q, k and v, or as many arrays (heads, n, dim) as are asked for."""
    return normal(o, *count * [(o.heads, o.n, o.dim)])


def elu1_map(o: Sizes) -> Any:
    """Return elu + 1, whatever the sizes."""
    return elu1()


def favor(o: Sizes) -> Any:
    """Return positive orthogonal features of the softmax kernel."""
    return random_features(Softmax(), o.dim, o.features, "positive", rng=o.seed)


def fitted(o: Sizes) -> Any:
    """Return a map such as `features.fit` returns, of drawn numbers: its time does not depend on what they are."""
    draws: list[Any] = [random_features(Softmax(), o.dim, o.features, "positive", rng=o.seed + side) for side in (0, 1)]
    queries, keys = (replace(phi.spec.unscaled, normalised=True) for phi in draws)
    return Fitted(Softmax(), "hedgehog", queries, keys, 0.0, "positive", 0.0)


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
