"""How the heads of the models attend: a method, and the draw of its random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

import kernattn as ka

__all__ = ["FEATURES", "METHODS", "REDRAW", "attention", "counting", "draw_at"]

METHODS = {
    "softmax": "softmax",
    "linear": "linear, elu + 1",
    "favor": "FAVOR+, fixed",
    "favor-redrawn": "FAVOR+, redrawn",
    "favor-settled": "FAVOR+, redrawn, then fixed",
    "relu": "relu features",
    "smreg": "SMREG",
    "trigonometric": "trigonometric",
    "lsh": "LSH",
}
FEATURES = 64
REDRAW = 20  # steps of training between draws, of those methods that draw anew
CHUNK = {64: 16, 784: 32}  # tokens of a chunk of LSH, by the length of sequences


def draw_at(method: str, step: int, steps: int) -> int:
    """Return which draw a method uses at a step of training, of so many."""
    if method == "favor-settled":
        step = min(step, steps // 4 - 1)
    return step // REDRAW if method in ("favor-redrawn", "favor-settled", "lsh") else 0


def attention(method: str, width: int, tokens: int, seed: int, draw: int, features: int = FEATURES) -> Any:
    """Return what `ka.transformer.forward` takes as attention, for heads of a width and sequences of so many tokens."""
    rng = np.random.default_rng([seed, draw])
    softmax = ka.kernels.Softmax()
    if method == "softmax":
        return None
    if method == "linear":
        return ka.features.elu1()
    if method == "relu":
        return ka.features.generalized("relu", width, features, rng=rng)
    if method == "lsh":
        return _hashed(rng.standard_normal((1, width, tokens // CHUNK[tokens] // 2)), CHUNK[tokens])
    if method == "smreg":
        rows = ka.projections.Orthogonal(norms="sqrt_d")
        return ka.random_features(softmax, width, features, "positive", rows, rng=rng)
    estimator = "trigonometric" if method == "trigonometric" else "positive"
    return ka.random_features(softmax, width, features, estimator, rng=rng)


def _hashed(rotations: Any, chunk: int) -> Any:
    """Return Reformer's attention, whose queries are its keys."""

    def attend(q: Any, k: Any, v: Any, *, causal: bool, key_mask: Any) -> Any:
        return ka.attention.lsh_attention(q, v, rotations=rotations, chunk=chunk, causal=causal, key_mask=key_mask)

    return attend


def counting(phi: ka.features.FeatureMap, counts: list[tuple[int, int]]) -> Any:
    """Return attention by a map that counts how many normalisers, phi(q) z, are 0 or less, and how many there are."""

    def attend(q: Any, k: Any, v: Any, *, causal: bool, key_mask: Any) -> Any:
        normalisers = (phi.query(q) * phi.key(k).cumsum(-2)).sum(-1)
        counts.append((int((normalisers <= 0).sum()), normalisers.numel()))
        return ka.causal_linear_attention(q, k, v, phi, key_mask=key_mask)[0]

    return attend
