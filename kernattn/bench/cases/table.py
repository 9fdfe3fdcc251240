"""The cases by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kernattn.bench.cases.attention import causal_elu1, causal_favor, full_favor, one_head, softmax
from kernattn.bench.cases.features import digits, gaussian_features, gram, hadamard_features, patches, tensor_sketch
from kernattn.bench.cases.race import Options, Race
from kernattn.bench.cases.step import step

__all__ = ["CASES"]

CASES: dict[str, Callable[[Options], Race]] = {
    "causal-elu1": causal_elu1,
    "causal-favor": causal_favor,
    "full-favor": full_favor,
    "one-head": one_head,
    "step": partial(step, reuse=False),
    "step-in-place": partial(step, reuse=True),
    "gaussian-features": gaussian_features,
    "hadamard-features": hadamard_features,
    "digits": digits,
    "patches": patches,
    "tensor-sketch": tensor_sketch,
    "gram": gram,
    "softmax": partial(softmax, causal=False),
    "softmax-causal": partial(softmax, causal=True),
}
