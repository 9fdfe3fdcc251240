"""Ways of taking steps in this library, each as a call without arguments."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn.attention import lsh_attention, softmax_attention
from kernattn.bench._clock import Call
from kernattn.features import FeatureMap
from kernattn.transformer import Config, Decoder, State, forward
from kernattn.transformer._attention import KeysValues
from kernattn.transformer._ends import apply_head, count_positions, embed
from kernattn.transformer._layers import apply_layer, split_heads
from kernattn.transformer._parts import Params, feed_forward, linear, norm

CHUNK, ROUNDS = 32, 1


def recurrent(params: Params, config: Config, tokens: NDArray[Any], phi: FeatureMap) -> Call:
    """Return a step of `Decoder` with a map, of a token (B,)."""
    decoder = Decoder(params, config, attention=phi)
    decoder.prefill(tokens[:, None])
    return _again(decoder, tokens)


def _again(decoder: Decoder, tokens: NDArray[Any]) -> Call:
    """Return a step that leaves as many tokens behind it as there were: the next one is taken in the same place."""

    def call() -> Any:
        out = decoder.step(tokens)
        for counts in (decoder._positions, decoder._lengths):
            counts -= 1
        decoder._furthest -= 1
        decoder._longest -= 1
        return out

    return call


def whole(params: Params, config: Config, tokens: NDArray[Any]) -> Call:
    """Return the logits of all tokens (n,), by exact attention."""
    return partial(forward, params, config, tokens[None])


def hashed(params: Params, config: Config, tokens: NDArray[Any]) -> Call:
    """Return the logits of all tokens (n,), by LSH attention of one round, queries shared with keys."""
    n = len(tokens)
    buckets = max(1, n // (2 * CHUNK))
    rotations = np.random.default_rng(0).standard_normal((ROUNDS, config.head_width, buckets), dtype=np.float32)

    def attention(q: Array, k: Array, v: Array, causal: bool, key_mask: Array | None) -> Array:
        return lsh_attention(q, v, rotations=rotations, chunk=CHUNK, causal=causal, key_mask=key_mask)

    return partial(forward, params, config, tokens[None], attention=attention)


def prefix(params: Params, config: Config, tokens: NDArray[Any]) -> Call:
    """Return the logits of the last of tokens (t,), by exact attention: of the last layer, the last row alone."""
    x, last = tokens[None], f"layers.{config.layers - 1}"

    def attending(q: Array, k: Array, v: Array) -> Array:
        return softmax_attention(q, k, v, causal=True)

    def call() -> Any:
        rows = embed(params, config, x, count_positions(config, x), None)
        for i in range(config.layers - 1):
            rows = apply_layer(params, config, f"layers.{i}", rows, attending)
        plain, row = norm(params, config, f"{last}.attention.norm", rows), rows[:, -1:]
        given = {"q": plain[:, -1:], "k": plain, "v": plain}
        heads = (linear(params, f"{last}.attention.{each}", x) for each, x in given.items())
        q, k, v = (split_heads(each, config.heads) for each in heads)
        out = softmax_attention(q, k, v).swapaxes(1, 2).reshape(row.shape)
        row = row + linear(params, f"{last}.attention.out", out)
        row = row + feed_forward(
            params, config, f"{last}.feed_forward", norm(params, config, f"{last}.feed_forward.norm", row)
        )
        return apply_head(params, config, norm(params, config, "norm", row))

    return call


def cached(params: Params, config: Config, tokens: NDArray[Any], keys: NDArray[Any], values: NDArray[Any]) -> Call:
    """Return a step of `Decoder` with exact attention, after so many keys and values (B, h, t, d) in every layer."""
    decoder, t = Decoder(params, config), keys.shape[-2]
    kept = KeysValues(keys, values, None)
    decoder.begin(State((kept,) * config.layers, np.full(len(tokens), t), None))
    return _again(decoder, tokens)
