"""Draws as inputs of graphs: one graph serves all layers of a model, and all redraws."""

import gc
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from kernattn._maps.chains import Chains
from kernattn.features import FeatureMap

INPUTS = "kernattn_inputs"  # the attribute of a layer that has the numbers of its draws


def layers_of(kind: type, config: Any) -> list[nn.Module]:
    """Return all layers of a class and a config."""
    # transformers hands an attention its layer alone, and a model may be older than register(): nothing else knows it
    return [x for x in gc.get_objects() if type(x) is kind and getattr(x, "config", None) is config]


def is_design(one: FeatureMap, other: FeatureMap) -> bool:
    """Whether two draws differ in matrices of frequencies and in offsets alone, which a graph can take."""
    a, b = one.spec, other.spec
    if a is None or b is None or a.omega is None or isinstance(a.omega, Chains):
        return False
    return replace(a, omega=b.omega, offset=b.offset).content == b.content


def put_inputs(layer: nn.Module, at: Any, phi: FeatureMap, wide: bool, device: str) -> None:
    """Put the numbers of a layer's draw beside it, in the dtype of sums; graphs of before keep theirs."""
    numbers: dict[str, Tensor] = {}
    for name in ("omega", "offset"):
        number = getattr(phi.spec, name)
        if number is not None:
            numbers[name] = torch.tensor(number, dtype=torch.float64 if wide else torch.float32, device=device)
    vars(layer).setdefault(INPUTS, {})[at] = numbers
