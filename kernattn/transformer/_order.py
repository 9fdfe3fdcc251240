"""The parameters of a transformer in the order of their use."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn.transformer._config import Config
from kernattn.transformer._parts import Params

Pair = tuple[NDArray[Any], NDArray[Any] | None]


def weights_in_order(params: Params, config: Config) -> Iterator[Pair]:
    """Yield (weight, bias) of each norm and matrix as a step uses them; the bias is None where there is none.

    The weight of a norm is its scale (dim,). Queries, keys and values are by one matrix.
    """
    for i in range(config.layers):
        attention, feed = f"layers.{i}.attention", f"layers.{i}.feed_forward"
        first, second = (_norm(params, f"{part}.norm") for part in (attention, feed))
        if config.norm_first:
            yield first
        yield _linear(params, *(f"{attention}.{part}" for part in "qkv"))
        yield _linear(params, f"{attention}.out")
        yield second if config.norm_first else first
        if config.activation == "swiglu":
            yield _linear(params, f"{feed}.gate")
        yield _linear(params, f"{feed}.up")
        yield _linear(params, f"{feed}.down")
        if not config.norm_first:
            yield second
    if config.norm_first:
        yield _norm(params, "norm")
    if config.output == "tokens":
        yield _linear(params, "output")
    if config.output == "tied":
        yield params["embed.tokens"].T, None


def _norm(params: Params, name: str) -> Pair:
    return params[f"{name}.scale"], params.get(f"{name}.bias")


def _linear(params: Params, *names: str) -> Pair:
    """Return matrices beside each other as one, and their biases."""
    weights = np.concatenate([params[f"{name}.weight"] for name in names], axis=1)
    biases = [params[f"{name}.bias"] for name in names if f"{name}.bias" in params]
    return weights, np.concatenate(biases) if biases else None
