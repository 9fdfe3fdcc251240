"""A cache that does not grow: each layer keeps the state of linear attention."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Self

from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from kernattn.attention import LinearState, WindowState
from kernattn.errors import ParameterError

READER = "_kernattn_layer"
ANEW = "make a new StateCache, or reset() this one, and give it all tokens"
ATTENTION_ONLY = (
    "a StateCache holds states of attention by 'kernattn_favor'; this model has layers with states of their own, "
    "such as gated layers or convolutions: let the model make its cache"
)


class StateLayer(CacheLayerMixin):  # type: ignore[misc]
    """A layer's cache: the sums over its keys, and how many tokens there were.

    `update` hands a model its new keys and values as they are, and attention finds the layer by the keys.
    """

    supports_early_init = False

    def __init__(self, **_: Any) -> None:
        super().__init__()
        self.state: LinearState | WindowState | None = None
        self.seen = 0
        self._unread = False

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take note that there are keys; what the state is like is known once attention has read them."""
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Return the new keys and values, which the attention that follows adds to the state."""
        self.lazy_initialization(key_states, value_states)
        self._unread = True
        setattr(key_states, READER, self)
        return key_states, value_states

    def read(self, count: int, attention: Callable[[Any], tuple[Tensor, LinearState | WindowState]]) -> Tensor:
        """Return the output of attention that goes on from the state by so many tokens, and keep the state after it."""
        out, self.state = attention(self.state)
        self.seen += count
        return out

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return how many tokens a mask is for, the new ones included, and 0, the first of them."""
        if not query_length:
            raise ParameterError(f"a StateCache in use has seen {self.seen} tokens; got a text with none after: {ANEW}")
        return self.seen + query_length, 0

    def get_seq_length(self) -> int:
        """Return how many tokens were seen."""
        return self.seen

    def get_max_length(self) -> int:
        """Return -1: there is no limit."""
        return -1

    @property
    def batch_size(self) -> int:
        """Number of sequences; -1 before the first."""
        return -1 if self.state is None else int(self.state.s.shape[0])

    def reset(self) -> None:
        """Forget everything."""
        self.state, self.seen, self._unread, self.is_initialized = None, 0, False, False

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse to take tokens back, which sums do not allow."""
        if tokens_to_remove:
            raise ParameterError(
                f"a state cannot take tokens back, as assistant_model and prompt_lookup_num_tokens need; got "
                f"crop({tokens_to_remove}): leave them out, or use the model's own cache"
            )

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Put the sequences into the order of beams."""
        self.batch_select_indices(beam_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep these sequences."""
        self._each(lambda part: part[indices.to(part.device)])

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat every sequence."""
        self._each(lambda part: part.repeat_interleave(repeats, dim=0))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a layer that goes on by itself, from the same state: states are values, to which no step writes."""
        memo[id(self)] = copy(self)
        return memo[id(self)]  # type: ignore[no-any-return]

    def _each(self, change: Callable[[Tensor], Tensor]) -> None:
        if self.state is not None:
            kind: Any = type(self.state)
            *parts, draw = self.state
            self.state = kind(*map(change, parts), draw)


class StateCache(Cache):  # type: ignore[misc]
    r"""A cache of constant size for generation: :math:`S = \sum_j \phi(k_j) v_j^T` and :math:`z = \sum_j \phi(k_j)`.

    Katharopoulos et al. (2020), section 3.4. Each layer keeps M (e + 2) floats a head of keys, for any number of
    tokens, where a cache of keys and values keeps d + e for each; beside a window of w exact tokens, w (d + e) more.
    It is for models whose attention is "kernattn_favor" (:func:`register`). Beams and repeated prompts work as with
    other caches; what takes tokens back does not. After an exception of the model make a new one: layers before it have
    seen its tokens, layers after it have not.

    Raises
    ------
    ParameterError
        When used: with another attention, by attention that is not causal, by a model that also has gated layers or
        convolutions, where tokens are to be taken back, with another number of sequences, or after an exception
        between layers.

    Examples
    --------
    >>> import torch
    >>> from transformers import GPT2Config, GPT2LMHeadModel
    >>> from kernattn.huggingface import StateCache, register
    >>> favor = register(num_features=32, rng=0)
    >>> model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, n_positions=64, vocab_size=9)).eval()
    >>> model.set_attn_implementation("kernattn_favor")
    >>> cache, prompt = StateCache(), torch.tensor([[1, 2, 3]])
    >>> with torch.no_grad():
    ...     logits = model(prompt, past_key_values=cache).logits
    >>> cache.get_seq_length(), tuple(cache.layers[0].state.s.shape)
    (3, (1, 2, 32, 8))
    """

    def __init__(self) -> None:
        super().__init__(layer_class_to_replicate=StateLayer)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Return the new keys and values of a layer, which must have seen and read as many tokens as the others."""
        if any(layer._unread for layer in self.layers):
            raise ParameterError(
                "a StateCache needs the attention 'kernattn_favor', which adds keys to its state; "
                "what ran in this model did not"
            )
        held, given = self.layers[0].batch_size if self.layers else -1, key_states.shape[0]
        if held not in (-1, given):
            raise ParameterError(f"a StateCache in use holds {held} sequences; got {given}: {ANEW}")
        keys, values = super().update(key_states, value_states, layer_idx, *args, **kwargs)
        count = key_states.shape[-2]
        seen = [layer.seen - count * (at < layer_idx) for at, layer in enumerate(self.layers) if layer.is_initialized]
        if len(set(seen)) > 1:
            raise ParameterError(f"layers of a StateCache have seen {seen} tokens: a forward pass failed; {ANEW}")
        return keys, values

    def get_conv_state(self, *args: Any, **kwargs: Any) -> Tensor | None:
        """Refuse layers with states of their own, which ask for them before they compute."""
        raise ParameterError(ATTENTION_ONLY)

    get_recurrent_state = update_conv_state = update_recurrent_state = get_conv_state

    @property
    def nbytes(self) -> int:
        """Bytes of all states."""
        states = [layer.state for layer in self.layers if layer.state is not None]
        return sum(part.nbytes for state in states for part in state[:-1])


def find_layer(key: Tensor) -> StateLayer | None:
    """Return the layer whose `update` handed out these keys, now to be read, or None where no StateCache did."""
    layer = getattr(key, READER, None)
    if layer is not None:
        layer._unread = False
    return layer
