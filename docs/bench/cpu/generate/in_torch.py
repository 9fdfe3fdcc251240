"""The same transformer in PyTorch, called in the strongest way we know.

`addmm` with matrices (in, out) beats `linear` with (out, in) at every number of rows; q, k and v are one product.
Attention is `scaled_dot_product_attention` on 4-D tensors, all of it in inference mode. A cache is allocated whole, and
its parts are views. torch.compile is not used: whole steps with frozen weights gain a few per cent, and take
minutes to compile for every number of tokens that are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.cpu import peers
from kernattn.bench._clock import Call
from kernattn.transformer import Config
from kernattn.transformer._parts import Params

MOST = 1 << 30
"""Bytes of caches of keys and values; beyond it, layers take turns in as many as fit."""


def fitting(layers: int, shape: Sequence[int]) -> int:
    """Return how many caches of a shape there are for so many layers: no layer finds its own in the processor's."""
    return min(layers, max(2, MOST // (8 * prod(shape))))


class InTorch:
    """Ways of taking steps, each as a call without arguments; tokens are of one sequence, or of a batch (B,)."""

    def __init__(self, params: Params, config: Config) -> None:
        torch, _ = peers.torch_of()
        self.torch, self.c = torch, config
        self.p: dict[str, Any] = {name: torch.as_tensor(value) for name, value in params.items()}
        for i in range(config.layers):
            of = f"layers.{i}.attention"
            for part in ("weight", "bias"):
                q, k, v = (self.p[f"{of}.{x}.{part}"] for x in "qkv")
                self.p[f"{of}.qkv.{part}"] = torch.cat([q, k, v], -1)
                self.p[f"{of}.kv.{part}"] = torch.cat([k, v], -1)

    def _linear(self, name: str, x: Any) -> Any:
        return self.torch.addmm(self.p[f"{name}.bias"], x, self.p[f"{name}.weight"])

    def _norm(self, name: str, x: Any) -> Any:
        scale, bias = self.p[f"{name}.scale"], self.p[f"{name}.bias"]
        return self.torch.nn.functional.layer_norm(x, (self.c.dim,), scale, bias, self.c.eps)

    def _heads(self, x: Any, parts: int, sequences: int) -> Any:
        """Return parts of rows (B n, parts D) as heads (B, h, n, d)."""
        return x.view(sequences, -1, parts, self.c.heads, self.c.head_width).permute(2, 0, 3, 1, 4).unbind(0)

    def _rest(self, i: int, rows: Any, out: Any) -> Any:
        """Return rows after a layer, from what its heads (B, h, n, d) attended to."""
        name = f"layers.{i}"
        rows = rows + self._linear(f"{name}.attention.out", out.transpose(1, 2).reshape(-1, self.c.dim))
        up = self._linear(f"{name}.feed_forward.up", self._norm(f"{name}.feed_forward.norm", rows))
        return rows + self._linear(f"{name}.feed_forward.down", self.torch.nn.functional.gelu(up))

    def _all(self, i: int, rows: Any, sequences: int) -> Any:
        """Return rows (B n, D) after a layer."""
        name = f"layers.{i}.attention"
        q, k, v = self._heads(self._linear(f"{name}.qkv", self._norm(f"{name}.norm", rows)), 3, sequences)
        return self._rest(i, rows, self._sdpa(q, k, v, is_causal=True))

    def _sdpa(self, *given: Any, **how: Any) -> Any:
        return self.torch.nn.functional.scaled_dot_product_attention(*given, **how)

    def _embedded(self, tokens: Any) -> Any:
        rows = self.p["embed.tokens"][tokens] + self.p["embed.positions"][: tokens.shape[-1]]
        return rows.view(-1, self.c.dim)

    def _logits(self, rows: Any) -> Any:
        return self._linear("output", self._norm("norm", rows))

    def whole(self, tokens: NDArray[Any]) -> Call:
        """Return the logits of all tokens (n,)."""
        x = self.torch.as_tensor(tokens)

        def call() -> Any:
            rows = self._embedded(x)
            for i in range(self.c.layers):
                rows = self._all(i, rows, 1)
            return self._logits(rows)

        return self._inferred(call)

    def prefix(self, tokens: NDArray[Any]) -> Call:
        """Return the logits of the last of tokens (t,) or (B, t): of the last layer, the last row alone."""
        x, last = self.torch.as_tensor(np.atleast_2d(tokens)), self.c.layers - 1
        name, (sequences, t) = f"layers.{last}.attention", x.shape

        def call() -> Any:
            rows = self._embedded(x)
            for i in range(last):
                rows = self._all(i, rows, sequences)
            plain = self._norm(f"{name}.norm", rows)
            k, v = self._heads(self._linear(f"{name}.kv", plain), 2, sequences)
            (q,) = self._heads(self._linear(f"{name}.q", plain[t - 1 :: t]), 1, sequences)
            return self._logits(self._rest(last, rows[t - 1 :: t], self._sdpa(q, k, v)))

        return self._inferred(call)

    def cached(self, tokens: NDArray[Any], keys: NDArray[Any], values: NDArray[Any], room: int) -> dict[str, Call]:
        """Return the logits of a token (B,) after so many keys and values (B, h, t, d), the same in all layers.

        Attention is fused, or two products and a softmax: which is faster hangs on the sizes.
        """
        torch, t, scale = self.torch, keys.shape[-2], self.c.head_width**-0.5
        shape = (*keys.shape[:2], room, keys.shape[-1])
        caches = []
        for _ in range(fitting(self.c.layers, shape)):
            caches.append([torch.empty(shape), torch.empty(shape)])
            for cache, given in zip(caches[-1], (keys, values), strict=True):
                cache[:, :, :t] = torch.as_tensor(given)
        x, where = torch.as_tensor(tokens), self.p["embed.positions"][t]

        def products(q: Any, k: Any, v: Any) -> Any:
            return (q @ k.transpose(-1, -2)).mul_(scale).softmax(-1) @ v

        def call(attended: Callable[[Any, Any, Any], Any]) -> Any:
            rows = self.p["embed.tokens"][x] + where
            for i in range(self.c.layers):
                name, (all_k, all_v) = f"layers.{i}.attention", caches[i % len(caches)]
                q, k, v = self._heads(self._linear(f"{name}.qkv", self._norm(f"{name}.norm", rows)), 3, len(x))
                all_k[:, :, t : t + 1], all_v[:, :, t : t + 1] = k, v
                rows = self._rest(i, rows, attended(q, all_k[:, :, : t + 1], all_v[:, :, : t + 1]))
            return self._logits(rows)

        ways = {"SDPA": self._sdpa, "products": products}
        return {way: self._inferred(partial(call, attended)) for way, attended in ways.items()}

    def _inferred(self, call: Call) -> Call:
        return self.torch.inference_mode()(call)
