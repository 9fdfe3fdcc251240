"""Whole layers of transformers' models with gates, and their parts: as they are, and as `accelerate` has them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from copy import deepcopy
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Any
from unittest import mock

from bench.cpu import peers
from bench.races import Case, Race
from bench.sizes import Sizes
from kernattn._runtime.extras import require
from kernattn.bench import Work
from kernattn.bench._clock import Call

STEPS = 32  # tokens of a call that decodes

LAYERS: dict[str, tuple[str, str, Callable[[int, int], dict[str, Any]]]] = {
    "qwen3-next": (
        "Qwen3Next", "GatedDeltaNet",
        lambda heads, dim: {
            "hidden_size": heads * dim // 2, "linear_num_value_heads": heads, "linear_key_head_dim": dim,
            "linear_num_key_heads": max(1, heads // 2), "linear_value_head_dim": dim,
        },
    ),
    "kimi-linear": (
        "KimiLinear", "DeltaAttention",
        lambda heads, dim: {
            "hidden_size": heads * dim * 9 // 16, "linear_num_heads": heads, "linear_head_dim": dim,
        },
    ),
    "mamba2": (
        "Mamba2", "Mixer",
        lambda heads, dim: {
            "hidden_size": heads * dim // 2, "num_heads": heads, "head_dim": dim, "state_size": 2 * dim, "n_groups": 1,
        },
    ),
    "minimax": (
        "MiniMax", "LightningAttention",
        lambda heads, dim: {"hidden_size": heads * dim * 3 // 4, "num_attention_heads": heads, "head_dim": dim},
    ),
}  # fmt: skip
"""By name: family, class of its layer, and sizes in the proportions of the published model, for heads of values."""


class _Layer:
    """A layer with random weights, of a model of one layer, and what goes in."""

    def __init__(self, o: Sizes, name: str, steps: int) -> None:
        require("transformers", "transformers", "layers of its models", "huggingface")
        self.torch, _ = peers.torch_of()
        transformers, (family, kind, sizes) = import_module("transformers"), LAYERS[name]
        layers = {} if family == "Mamba2" else {"layer_types": ["linear_attention"]}
        config = getattr(transformers, f"{family}Config")(num_hidden_layers=1, **layers, **sizes(o.heads, o.dim))
        self.module = import_module(type(config).__module__.replace(".configuration_", ".modeling_"))
        self.torch.manual_seed(o.seed)
        self.layer = getattr(self.module, family + kind)(config, layer_idx=0).eval()
        for p in self.layer.parameters():  # of some, only a whole model sets the numbers
            self.torch.nn.init.normal_(p, std=0.1 if p.ndim == 1 else p[0].numel() ** -0.5)
        lightning = family == "MiniMax"
        self.cached = {"position_embeddings": None, "attention_mask": None} if lightning else {}
        names = "cache", "cache_params", "past_key_values"  # the first from transformers 5.24 on
        taken = signature(self.layer.forward).parameters
        self.cache_name = next(each for each in names if each in taken)
        self.make_cache = self.module.MiniMaxCache if lightning else partial(transformers.DynamicCache, config=config)
        self.steps, self.tokens = steps, self.torch.randn(1, o.n if steps == 1 else STEPS, config.hidden_size)
        self.filled = self.make_cache()
        self.call(self.tokens, self.filled)

    def call(self, tokens: Any, cache: Any) -> Any:
        """Return what the layer makes of tokens after those that a cache has seen."""
        with self.torch.no_grad():
            out = self.layer(tokens, **self.cached, **{self.cache_name: cache})
        return out[0] if isinstance(out, tuple) else out

    def run(self, context: Callable[[Any], AbstractContextManager[Any]], cache: Any) -> Any:
        """Take all tokens with a new cache, or decode with one that has been filled."""
        with context(self.layer):
            if self.steps == 1:
                return self.call(self.tokens, self.make_cache())
            for at in range(self.steps):
                out = self.call(self.tokens[:, at : at + 1], cache)
            return out

    def functions(self, context: Callable[[Any], AbstractContextManager[Any]], names: list[str]) -> dict[str, Call]:
        """Return the calls of functions that a layer makes, with their arguments."""
        found: dict[str, Call] = {}

        def noted(name: str, own: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            found[name] = partial(own, *args, **kwargs)
            return own(*args, **kwargs)

        with context(self.layer), ExitStack() as patches:
            for name in names:
                own = getattr(self.module, name)
                patches.enter_context(mock.patch.object(self.module, name, partial(noted, name, own)))
            self.run(nullcontext, deepcopy(self.filled))
        return {name: partial(self._repeat, call) for name, call in found.items()}

    def linear(self) -> Call:
        """Return what calls the linear maps of the layer alone."""
        given: list[tuple[Any, Any]] = []
        kinds = [each for each in self.layer.modules() if isinstance(each, self.torch.nn.Linear)]
        hooks = [each.register_forward_hook(lambda each, x, _: given.append((each, x[0]))) for each in kinds]
        self.call(self.tokens if self.steps == 1 else self.tokens[:, :1], deepcopy(self.filled))
        for hook in hooks:
            hook.remove()
        return partial(self._repeat, lambda: [each(x) for each, x in given])

    def _repeat(self, call: Call) -> Any:
        with self.torch.no_grad():
            for _ in range(self.steps):
                out = call()
        return out


def _race(o: Sizes, name: str, steps: int) -> Race:
    """A layer with gates of a model of transformers, and its parts: with accelerate, and as it is."""
    from kernattn.huggingface._accelerate import SWAPS, accelerate

    layer = _Layer(o, name, steps)
    names = [each for each in SWAPS if hasattr(layer.module, each)]
    ways = {"ours": accelerate, "transformers": nullcontext}
    calls: dict[str, Call] = {who: partial(layer.run, way, deepcopy(layer.filled)) for who, way in ways.items()}
    calls["linear maps alone"] = layer.linear()
    for who, way in ways.items():
        for function, call in layer.functions(way, names).items():
            calls[f"{who}, {'convolution' if 'conv' in function else 'rule'} alone"] = call
    weights = float(sum(p.numel() for p in layer.layer.parameters()))
    return Race(calls, Work(4 * weights, 2 * weights * (o.n if steps == 1 else 1)), sets=steps)


MODELS = {
    **{f"layer-{name}": Case(partial(_race, name=name, steps=1), n=512, told=name) for name in LAYERS},
    **{
        f"layer-{name}-step": Case(partial(_race, name=name, steps=STEPS), n=1, told=f"{name}, decoding")
        for name in LAYERS
    },
}
"""The cases by name."""
