"""Mechanisms of attention, each as large as a share of exact attention's flops allows."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn.attention import (
    linear_attention,
    linformer_attention,
    linformer_projections,
    nystrom_attention,
    routing_attention,
    scatterbrain_attention,
    softmax_attention,
    update_centroids,
)
from kernattn.attention.patterns import Pattern, bigbird, local, lsh
from kernattn.features import random_features
from kernattn.kernels import Softmax

ROUNDS, RANDOM, LLOYD = 2, 3, 4
Attend = Callable[[Float64, Float64, Float64], Float64]


class Mechanism(NamedTuple):
    """One draw of a mechanism: a function that is linear in v, and its flops over those of exact attention."""

    attend: Attend
    flops: float


def _pattern(pattern: Pattern, q: Float64, extra: float = 0.0) -> Mechanism:
    n = len(q)
    return Mechanism(lambda q, k, v: softmax_attention(q, k, v, pattern=pattern), pattern.plan(n).pairs / n**2 + extra)


def _window(q: Float64, k: Float64, e: int, budget: float, rng: np.random.Generator) -> Mechanism:
    return _pattern(local(round((budget * len(q) - 1) / 2)), q)


def _bigbird(q: Float64, k: Float64, e: int, budget: float, rng: np.random.Generator) -> Mechanism:
    """Return blocks of which a row sees five and RANDOM others; the dense rows cost two blocks a row more."""
    block = max(1, round(budget * len(q) / (5 + RANDOM + 2)))
    return _pattern(bigbird(block, RANDOM, rng=rng), q)


def _lsh(q: Float64, k: Float64, e: int, budget: float, rng: np.random.Generator) -> Mechanism:
    """Let hashes decide who meets, and the softmax of the scores weigh that."""
    n, d = q.shape
    chunk = max(1, round(0.75 * budget * n / (2 * ROUNDS)))
    half = min(n / chunk / 2, budget / 4 * n * (d + e) / (ROUNDS * d))  # of the buckets, for a quarter of the flops
    rotations = rng.standard_normal((ROUNDS, d, max(1, int(half))))
    return _pattern(lsh(k, rotations=rotations, chunk=chunk), q, rotations.size / (n * (d + e)))


def _routing(q: Float64, k: Float64, e: int, budget: float, rng: np.random.Generator) -> Mechanism:
    """Return centroids by a few steps of k-means from random keys, which are not counted: a model keeps them.

    As few as fit the budget, where each takes its share of the tokens; near n^(1/2), the least flops, where none fit.
    """
    n, d = q.shape
    ratio = 2 * d / (n * (d + e))  # of the products with a centroid
    counts = np.arange(1, n + 1)
    costs = 1 / counts + ratio * counts
    fits = np.flatnonzero(costs <= budget)
    count = int(counts[fits[0] if len(fits) else np.argmin(costs)])
    window = -(-n // count)
    centroids = k[None, rng.choice(n, count, replace=False)]
    for _ in range(LLOYD):
        centroids = update_centroids(centroids, q[None], k[None], decay=0.0)
    pairs = count * min(window, n) ** 2
    return Mechanism(
        lambda q, k, v: routing_attention(q[None], k[None], v[None], centroids, window=window)[0],
        pairs / n**2 + ratio * count,
    )


def _pooling(q: Float64, k: Float64, e: int, budget: float, rng: np.random.Generator) -> Mechanism:
    """Return means of segments: Linformer's pooling, or memory-compressed attention by means."""
    return _projected("pooling", max(1, round(budget * len(k))), q, rng, 0.0)


def _linformer(q: Float64, k: Float64, e: int, budget: float, rng: np.random.Generator) -> Mechanism:
    rows = max(1, round(budget * len(k) / 2))
    return _projected("gaussian", rows, q, rng, rows / len(q))


def _projected(kind: str, rows: int, q: Float64, rng: np.random.Generator, extra: float) -> Mechanism:
    n = len(q)
    sides = linformer_projections(rows, n, kind=kind, rng=rng)
    return Mechanism(lambda q, k, v: linformer_attention(q, k, v, *sides), rows / n + extra)


def _nystrom(q: Float64, k: Float64, e: int, budget: float, rng: np.random.Generator) -> Mechanism:
    n, d = q.shape
    landmarks = max(1, round(budget * n / 2))
    flops = 4 * landmarks * n * (d + e) + 6 * 8 * landmarks**3
    while landmarks > 1 and flops > 2 * budget * n**2 * (d + e):
        landmarks -= 1
        flops = 4 * landmarks * n * (d + e) + 6 * 8 * landmarks**3
    return Mechanism(lambda q, k, v: nystrom_attention(q, k, v, num_landmarks=landmarks), flops / (2 * n**2 * (d + e)))


def _favor(q: Float64, k: Float64, e: int, budget: float, rng: np.random.Generator) -> Mechanism:
    m = max(1, round(budget * len(q) / 2))
    phi = random_features(Softmax(), q.shape[1], m, "positive", rng=rng)
    return Mechanism(lambda q, k, v: linear_attention(q, k, v, phi), 2 * m / len(q))


def _scatterbrain(q: Float64, k: Float64, e: int, budget: float, rng: np.random.Generator) -> Mechanism:
    """Give as many features as a row's window has keys, which the features leave out."""
    n, d = q.shape
    m = max(1, round(budget * n / 3))
    phi = random_features(Softmax(), d, m, "positive", rng=rng)
    near = local(max(0, round((m - 1) / 2)))
    return Mechanism(lambda q, k, v: scatterbrain_attention(q, k, v, phi, near), 2 * m / n + near.plan(n).pairs / n**2)


Maker = Callable[[Float64, Float64, int, float, np.random.Generator], Mechanism]
MECHANISMS: dict[str, Maker] = {
    "local": _window,
    "bigbird": _bigbird,
    "lsh": _lsh,
    "routing": _routing,
    "pooling": _pooling,
    "linformer": _linformer,
    "nystrom": _nystrom,
    "favor": _favor,
    "scatterbrain": _scatterbrain,
}
DRAWN = ("bigbird", "lsh", "routing", "linformer", "favor", "scatterbrain")  # by random numbers
