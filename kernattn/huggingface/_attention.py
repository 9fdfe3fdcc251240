"""Attention as models of transformers call it: exact, and by random features."""

from __future__ import annotations

from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from kernattn._arrays.graphs import in_a_graph
from kernattn.attention import (
    LinearState,
    causal_linear_attention,
    key_state,
    linear_attention,
    linear_attention_step,
    patterns,
    softmax_attention,
    softmax_with_lse,
)
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap, LearntMap, random_features
from kernattn.huggingface._beside import FIXED, MAP, given, kept
from kernattn.huggingface._cache import find_layer
from kernattn.huggingface._call import Call, read_call
from kernattn.huggingface._inputs import INPUTS, is_design, layers_of, put_inputs
from kernattn.huggingface._places import place_of
from kernattn.huggingface._settings import NOTED, Note, Settings, settle
from kernattn.kernels import Softmax
from kernattn.torch._heads import join_heads
from kernattn.torch._specs import KeptMap, names_of


def exact_attention(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
) -> tuple[Tensor, None]:
    """Return exact attention (batch, n, heads, e) of heads (batch, heads, n, d)."""
    if find_layer(key) is not None:
        raise ParameterError("a StateCache needs the attention 'kernattn_favor'; exact attention keeps all keys")
    call = read_call(module, query, key, value, *args, exact=True, **kwargs)
    pattern = None if call.window is None else patterns.local(call.window - 1)
    q, k, v, mask = call[:4]
    how: dict[str, Any] = {"scale": call.scale, "causal": call.causal, "key_mask": mask, "pattern": pattern}
    if call.sinks is None:
        return give_back(softmax_attention(q, k, v, **how))
    out, lse = softmax_with_lse(q, k, v, **how)
    sinks = call.sinks.to(lse.dtype).reshape(*lse.shape[1:-1], 1)
    return give_back((out * torch.sigmoid(lse - sinks)[..., None]).to(out.dtype))


class Favor:
    r"""Attention by random features of the softmax kernel, :math:`\phi(q)^T \phi(k) \approx e^{s q^T k}`.

    FAVOR+, Choromanski et al. (2021), as :func:`register` hands it to transformers. Every layer has a draw of its own,
    which follows from the seed, the number of redraws and the layer's index. Layers that have no index are counted as
    their model holds them. The first call writes the settings into the model's config, which is saved with it, and a
    model that is loaded has those that it was saved with.

    Attributes
    ----------
    num_features, estimator, projection, seed : object
        As `register` takes them; the seed is that of all draws, and 0 of a map without one. Models that were saved with
        others have theirs.
    beside : str
        The name of the data or of the map that it was given, under which a model's config refers to it.
    draws : int
        How many times all layers were redrawn.
    """

    def __init__(
        self,
        num_features: int,
        estimator: str,
        projection: str,
        seed: int,
        said: tuple[str, ...] = (),
        beside: str = "",
    ) -> None:
        self.num_features, self.estimator, self.projection, self.seed = num_features, estimator, projection, seed
        self.draws = self._drawn = 0
        self.beside = beside
        self._said = said  # which of them must be those of a model's file
        self._maps: dict[tuple[Settings, int, int, float], FeatureMap] = {}
        self._number = next(_numbers)
        self._in_graphs = WeakKeyDictionary[nn.Module, set[tuple[Any, ...]]]()

    def redraw(self) -> None:
        """Give every layer a fresh draw. A StateCache filled before belongs to the old one, and is refused."""
        if self.estimator in (MAP, *FIXED):
            raise ParameterError(f"attention of estimator {self.estimator!r} has no draw: there is nothing to redraw")
        self.draws += 1
        self._maps.clear()
        for layer, forms in self._in_graphs.items():
            noted = getattr(layer.config, NOTED, None)
            settings = self._settle(layer) if isinstance(noted, Note) and noted.by == self._number else self._own
            for form in forms:
                self._put(layer, settings, *form)

    def draw(self, layer: int, dim: int, scale: float, settings: Settings | None = None) -> Any:
        """Return the map of a layer: of its index, of the dimension of its heads, and of the scale of its scores."""
        settings = self._own if settings is None else settings
        layer = 0 if settings.estimator == "learned" else layer  # one fit for all layers: they have the same data
        if torch.compiler.is_dynamo_compiling():
            return KeptMap(*_draw_kept(*settings, layer, dim, scale))
        key = settings, layer, dim, scale
        if key not in self._maps:
            self._maps[key] = _draw(*settings, layer, dim, scale)
        return self._maps[key]

    @property
    def _own(self) -> Settings:
        return Settings(self.num_features, self.estimator, self.projection, self.seed, self.draws, self.beside)

    def _settle(self, module: nn.Module) -> Settings:
        """Return what a model's draws follow from; a graph is of these settings of the registration alone."""
        return settle(module, self._number, self._said, *self._own)

    def _input(self, module: nn.Module, call: Call) -> Any:
        """Return the map of a layer whose draw is an input of the graph; None where it cannot be."""
        config = getattr(module, "config", None)
        if config is None:
            return None
        form = call.q.shape[-1], call.scale, call.q.dtype == torch.float64, str(call.q.device)
        design = self._prepare(type(module), config, *form)
        numbers = getattr(module, INPUTS, {}).get((self._number, *form))
        if design is None or numbers is None:
            return None
        kept: Any = KeptMap(*design)
        return LearntMap(kept, numbers)

    @in_a_graph
    def _prepare(self, kind: type, config: Any, dim: int, scale: float, *form: Any) -> tuple[Any, ...] | None:
        """Put draws beside all layers of a config, where a graph finds them, and return what makes their design."""
        layers = layers_of(kind, config)
        if not layers:
            return None
        settings = self._settle(layers[0])
        if settings.estimator in (MAP, "learned", *FIXED):
            return None
        design, other = (_draw(*settings._replace(seed=0, draws=0), at, dim, scale) for at in (0, 1))
        if any(getattr(layer, "layer_idx", None) is None for layer in layers) or not is_design(design, other):
            return None
        for layer in layers:
            self._in_graphs.setdefault(layer, set()).add((dim, scale, *form))
            self._put(layer, settings, dim, scale, *form)
        return names_of(design)

    def _put(self, layer: Any, settings: Settings, dim: int, scale: float, *form: Any) -> None:
        phi = _draw(*settings, layer.layer_idx, dim, scale)
        put_inputs(layer, (self._number, dim, scale, *form), phi, *form)

    def _check_draws(self) -> None:
        """Raise where a backward pass computes a layer again, as checkpointing does, and its draw is another one."""
        if torch._C._current_graph_task_id() == -1:
            self._drawn = self.draws
        elif self._drawn != self.draws:
            raise ParameterError(
                "a layer that is computed again must have the draw that it had; got redraws "
                f"({self.draws - self._drawn}) between a pass and its way back: call redraw() between steps"
            )

    def __call__(
        self, module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, None]:
        """Return linear attention (batch, n, heads, e) of heads (batch, heads, n, d)."""
        layer = find_layer(key)
        call = read_call(module, query, key, value, *args, **kwargs)
        if not torch.compiler.is_dynamo_compiling():
            self._check_draws()
        phi = self._input(module, call) if layer is None and torch.compiler.is_dynamo_compiling() else None
        if phi is None:
            index = getattr(module, "layer_idx", None)
            if index is None:
                index = place_of(id(module), module)  # a graph is of one module where it has asked for its id
            phi = self.draw(index, call.q.shape[-1], call.scale, self._settle(module))
        if layer is not None:
            if not call.causal:
                raise ParameterError("a StateCache is for causal attention; got attention of all tokens to all")
            out = layer.read(call.k.shape[-2], lambda state: _continue(state, call, phi))
        elif call.causal:
            out = _attend_last(call, phi)
        else:
            out = linear_attention(call.q, call.k, call.v, phi, key_mask=call.key_mask)
        return give_back(out)


_numbers = count()


def give_back(out: Tensor) -> tuple[Tensor, None]:
    """Return grouped outputs (..., n, e) as transformers takes them, (batch, n, heads, e), and no weights."""
    return join_heads(out).transpose(1, 2).contiguous(), None


def _draw(
    num_features: int, estimator: str, projection: str, seed: int, draws: int, beside: str, layer: int, dim: int,
    scale: float,
) -> FeatureMap:  # fmt: skip
    """Return the map of a layer."""
    if estimator in FIXED:
        return FIXED[estimator]()
    of = kept(beside)
    if estimator == MAP:
        return of  # type: ignore[no-any-return]
    rng = np.random.default_rng([seed, draws, layer])
    data = None if of is None else given(of)
    return random_features(Softmax(scale=scale), dim, num_features, estimator, projection, data, rng)


@in_a_graph
def _draw_kept(*made_of: Any) -> tuple[Any, ...]:
    return names_of(_draw(*made_of))


def _continue(state: LinearState | None, call: Call, phi: FeatureMap) -> tuple[Tensor, LinearState]:
    """Return causal attention after a state, and the state after it."""
    q, k, v, mask = call[:4]
    if state is None or q.shape[-2] > 1:
        return causal_linear_attention(q, k, v, phi, state=state, key_mask=mask)
    row = None if mask is None else mask[..., 0]
    out, state = linear_attention_step(state, q[..., 0, :], k[..., 0, :], v[..., 0, :], phi, key_mask=row)
    return out[..., None, :], state


def _attend_last(call: Call, phi: FeatureMap) -> Tensor:
    """Return causal attention of n queries, the last of l tokens: the keys before them are a state."""
    q, k, v, mask = call[:4]
    first = k.shape[-2] - q.shape[-2]
    if not first:
        return causal_linear_attention(q, k, v, phi, key_mask=mask)[0]
    early, late = (None, None) if mask is None else (mask[..., :first], mask[..., first:])
    state = key_state(k[..., :first, :], v[..., :first, :], phi, key_mask=early)
    return causal_linear_attention(q, k[..., first:, :], v[..., first:, :], phi, state=state, key_mask=late)[0]
