"""Which of the layers of its model a layer without an index is."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn
from transformers import PreTrainedModel

from kernattn._arrays.graphs import in_a_graph

_places: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()


@in_a_graph
def place_of(_: int, layer: nn.Module) -> int:
    """Return the place of a layer among those of its class and config in its model, in the order of the model.

    So a model that is loaded from a file has the same places, whatever was called before, and whatever other models
    have its config. Layers outside of models are counted in the order of their first call.
    """
    if layer not in _places:
        config = getattr(layer, "config", None)
        model = _model_of(layer, config)
        beside = list(_places) if model is None else list(model.modules())
        alike = [layer] if model is None else _of_config(beside, config, type(layer))
        others = [_places[x] for x in _of_config(beside, config) if x in _places and x not in alike]
        for place, each in enumerate(alike, 1 + max(others, default=-1)):
            _places[each] = place
    return _places[layer]


def _of_config(modules: Iterable[nn.Module], config: Any, kind: type = nn.Module) -> list[nn.Module]:
    return [x for x in modules if isinstance(x, kind) and getattr(x, "config", None) is config]


def _model_of(layer: nn.Module, config: Any) -> nn.Module | None:
    """Return the outermost model of a config that holds a layer; None where there is none."""
    # transformers hands an attention its layer alone, which knows of no model
    models = [x for x in gc.get_objects() if issubclass(type(x), PreTrainedModel)]
    sizes = {x: [*x.modules()] for x in _of_config(models, config)}
    return max((x for x, held in sizes.items() if layer in held), key=lambda x: len(sizes[x]), default=None)
