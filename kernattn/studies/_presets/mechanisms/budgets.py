"""Mechanisms of attention, each as large as a share of exact attention's flops allows."""

from collections.abc import Callable
from typing import NamedTuple
from warnings import catch_warnings, simplefilter

import numpy as np
from scipy.optimize import minimize_scalar

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
from kernattn.errors import ParameterError
from kernattn.features import FeatureMap, fit, random_features
from kernattn.kernels import Softmax

ROUNDS, RANDOM, LLOYD = 2, 3, 4
Attend = Callable[[Float64, Float64, Float64], Float64]


BIASES = (-12.0, 12.0)  # of exact scores, beside a map that weighs all keys on a scale of its own
Rows = tuple[Float64, Float64, Float64]
"""Queries (n, d), keys (n, d) and values (n, e)."""


class Inputs(NamedTuple):
    """What a mechanism is made for: queries and keys, the dimension of values, and other rows, which a fit may see."""

    q: Float64
    k: Float64
    e: int
    unseen: Rows | None


class Mechanism(NamedTuple):
    """One draw of a mechanism: a function that is linear in v, and its flops over those of exact attention."""

    attend: Attend
    flops: float


def _pattern(pattern: Pattern, q: Float64, extra: float = 0.0) -> Mechanism:
    n = len(q)
    return Mechanism(lambda q, k, v: softmax_attention(q, k, v, pattern=pattern), pattern.plan(n).pairs / n**2 + extra)


def _window(given: Inputs, budget: float, rng: np.random.Generator) -> Mechanism:
    return _pattern(local(round((budget * len(given.q) - 1) / 2)), given.q)


def _bigbird(given: Inputs, budget: float, rng: np.random.Generator) -> Mechanism:
    """Return blocks of which a row sees five and RANDOM others; the dense rows cost two blocks a row more."""
    block = max(1, round(budget * len(given.q) / (5 + RANDOM + 2)))
    return _pattern(bigbird(block, RANDOM, rng=rng), given.q)


def _lsh(given: Inputs, budget: float, rng: np.random.Generator) -> Mechanism:
    """Let hashes decide who meets, and the softmax of the scores weigh that."""
    (q, k, e, _), (n, d) = given, given.q.shape
    chunk = max(1, round(0.75 * budget * n / (2 * ROUNDS)))
    half = min(n / chunk / 2, budget / 4 * n * (d + e) / (ROUNDS * d))  # of the buckets, for a quarter of the flops
    rotations = rng.standard_normal((ROUNDS, d, max(1, int(half))))
    return _pattern(lsh(k, rotations=rotations, chunk=chunk), q, rotations.size / (n * (d + e)))


def _routing(given: Inputs, budget: float, rng: np.random.Generator) -> Mechanism:
    """Return centroids by a few steps of k-means from random keys, which are not counted: a model keeps them.

    As few as fit the budget, where each takes its share of the tokens; near n^(1/2), the least flops, where none fit.
    """
    (q, k, e, _), (n, d) = given, given.q.shape
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


def _pooling(given: Inputs, budget: float, rng: np.random.Generator) -> Mechanism:
    """Return means of segments: Linformer's pooling, or memory-compressed attention by means."""
    return _project("pooling", max(1, round(budget * len(given.k))), given.q, rng, 0.0)


def _linformer(given: Inputs, budget: float, rng: np.random.Generator) -> Mechanism:
    rows = max(1, round(budget * len(given.k) / 2))
    return _project("gaussian", rows, given.q, rng, rows / len(given.q))


def _project(kind: str, rows: int, q: Float64, rng: np.random.Generator, extra: float) -> Mechanism:
    n = len(q)
    sides = linformer_projections(rows, n, kind=kind, rng=rng)
    return Mechanism(lambda q, k, v: linformer_attention(q, k, v, *sides), rows / n + extra)


def _nystrom(given: Inputs, budget: float, rng: np.random.Generator) -> Mechanism:
    (n, d), e = given.q.shape, given.e
    landmarks = max(1, round(budget * n / 2))
    flops = 4 * landmarks * n * (d + e) + 6 * 8 * landmarks**3
    while landmarks > 1 and flops > 2 * budget * n**2 * (d + e):
        landmarks -= 1
        flops = 4 * landmarks * n * (d + e) + 6 * 8 * landmarks**3
    return Mechanism(lambda q, k, v: nystrom_attention(q, k, v, num_landmarks=landmarks), flops / (2 * n**2 * (d + e)))


def _favor(given: Inputs, budget: float, rng: np.random.Generator) -> Mechanism:
    n, d = given.q.shape
    return _features(random_features(Softmax(), d, _count(n, budget / 2), "positive", rng=rng), n)


def _learn(given: Inputs, budget: float, rng: np.random.Generator) -> Mechanism:
    n = len(given.q)
    return _features(_fit(given, _count(n, budget / 2), rng), n)


def _features(phi: FeatureMap, n: int) -> Mechanism:
    m = phi.num_features_of(phi.dim or 1)
    return Mechanism(lambda q, k, v: linear_attention(q, k, v, phi), 2 * m / n)


def _scatterbrain(given: Inputs, budget: float, rng: np.random.Generator) -> Mechanism:
    """Give as many features as a row's window has keys, which the features leave out."""
    n, d = given.q.shape
    m = _count(n, budget / 3)
    return _beside_window(random_features(Softmax(), d, m, "positive", rng=rng), n, None)


def _window_learned(given: Inputs, budget: float, rng: np.random.Generator) -> Mechanism:
    """Give as many features as a row's window has keys, and exact scores the bias that errs least on the fit's rows."""
    n = len(given.q)
    phi = _fit(given, _count(n, budget / 3), rng)
    assert given.unseen is not None
    q, k, v = given.unseen
    exact = softmax_attention(q, k, v)

    def error(bias: float) -> float:
        return float(np.sum((_beside_window(phi, len(q), bias).attend(q, k, v) - exact) ** 2))

    least = minimize_scalar(error, bounds=BIASES, method="bounded", options={"xatol": 0.02})
    return _beside_window(phi, n, float(least.x))


def _beside_window(phi: FeatureMap, n: int, bias: float | None) -> Mechanism:
    m = phi.num_features_of(phi.dim or 1)
    near = local(max(0, round((m - 1) / 2)))
    flops = 2 * m / n + near.plan(n).pairs / n**2
    return Mechanism(lambda q, k, v: scatterbrain_attention(q, k, v, phi, near, near_bias=bias), flops)


def _fit(given: Inputs, m: int, rng: np.random.Generator) -> FeatureMap:
    """Return a map that was fitted to other rows of the source, or the random one that errs less there."""
    if given.unseen is None:
        raise ParameterError(f"{' and '.join(FITTED)} are fitted to rows that do not judge: a file of tokens has none")
    q, k, v = given.unseen
    with catch_warnings():
        simplefilter("ignore", UserWarning)  # of few rows, and of fits that do not help
        return fit(Softmax(), (q, k), m, values=v, rng=rng)


def _count(n: int, share: float) -> int:
    return max(1, round(share * n))


Maker = Callable[[Inputs, float, np.random.Generator], Mechanism]
MECHANISMS: dict[str, Maker] = {
    "local": _window,
    "bigbird": _bigbird,
    "lsh": _lsh,
    "routing": _routing,
    "pooling": _pooling,
    "linformer": _linformer,
    "nystrom": _nystrom,
    "favor": _favor,
    "learned": _learn,
    "scatterbrain": _scatterbrain,
    "window-learned": _window_learned,
}
FITTED = ("learned", "window-learned")  # to other rows of a source: once, for a fit takes seconds
DRAWN = ("bigbird", "lsh", "routing", "linformer", "favor", "scatterbrain")  # by random numbers
