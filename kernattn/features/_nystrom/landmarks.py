"""How the landmarks of a Nystrom map are chosen."""

from math import ceil, log
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64
from kernattn._arrays.shapes import strips
from kernattn._arrays.units import in_units, unit_of
from kernattn._runtime.lazy_scipy import cluster
from kernattn.features._nystrom.gram import BLOCK, Gram

ROUNDS = 20  # of Lloyd's algorithm
PASSES = 3  # over the data in batches


def uniform(gram: Gram, m: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Pick m rows, all sets alike: Williams and Seeger (2001)."""
    return rng.choice(len(gram), m, replace=False)


def kmeans(data: Float64, m: int, rng: np.random.Generator) -> Float64:
    """Return the centres of m clusters by Lloyd's algorithm: Zhang, Tsang and Kwok (2008).

    It starts from rows that are drawn one by one, each with probability proportional to its squared distance from those
    before it: k-means++ (Arthur and Vassilvitskii 2007).
    """
    with catch_warnings():
        simplefilter("ignore", UserWarning)  # a cluster that loses all rows keeps its centre
        unit = np.ldexp(1.0, np.frexp(np.abs(data).max())[1] - 1)  # whose squares are floats
        data = data / unit
        found = cluster.kmeans2(data, data[_far_apart(data, m, rng)], iter=ROUNDS, minit="matrix")[0]
    centres: Float64 = found * unit
    return centres


def _far_apart(data: Float64, m: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return the rows that k-means++ draws; any rows once all are the same as one of them."""
    rows = np.empty(m, dtype=np.int64)
    distance = np.ones(len(data))
    for i in range(m):
        total = np.sum(distance)
        rows[i] = rng.choice(len(data), p=distance / total if total > 0 else None)
        from_it = np.sum((data - data[rows[i]]) ** 2, axis=1)
        distance = from_it if i == 0 else np.minimum(distance, from_it)
    return rows


def minibatch_kmeans(data: Float64, m: int, rng: np.random.Generator) -> Float64:
    """Return the centres of m clusters by scikit-learn's mini-batch k-means (Sculley 2010), from k-means++.

    The number of steps does not depend on sums that threads make, so that the same draw gives the same centres.
    """
    from sklearn.cluster import MiniBatchKMeans

    model = MiniBatchKMeans(
        m,
        max_iter=PASSES,
        max_no_improvement=None,
        n_init=1,
        compute_labels=False,
        random_state=int(rng.integers(2**31)),
    )
    unit = unit_of(data)
    centres: Float64 = model.fit(in_units(data, unit)).cluster_centers_
    return centres if unit == 1 else centres * unit


def leverage(gram: Gram, m: int, rng: np.random.Generator) -> NDArray[np.int64]:
    r"""Pick m rows, each with a chance min(1, c times its approximate ridge leverage score), recursively.

    Musco and Musco (2017), algorithm 3: the scores :math:`\tau_i = [K (K + \lambda I)^{-1}]_{ii}` of a set of rows
    follow from a weighted sample of its random half, whose scores follow from a quarter, and so on. The ridge
    :math:`\lambda` is
    :math:`\sum_{i > k} \sigma_i / k` of the sampled matrix, with :math:`k = m / (4 \log m)`.
    """
    order = rng.permutation(len(gram))
    sizes = [len(gram)]
    while sizes[-1] > 2 * m:
        sizes.append(ceil(sizes[-1] / 2))
    rows = order[: sizes.pop()]
    sample = rows[:m]
    weights = np.full(len(sample), (len(rows) / len(sample)) ** 0.5)
    rank = ceil(m / (4 * log(max(m, 3))))
    while True:
        scores = _scores(gram, rows, sample, weights, rank)
        if not sizes:
            break
        chance = _probabilities(scores, m)
        taken = rng.random(len(rows)) < chance
        taken[np.argmax(chance)] = True
        sample, weights = rows[taken], chance[taken] ** -0.5
        rows = order[: sizes.pop()]
    line = np.cumsum(_probabilities(scores, m))  # systematic sampling: rows are in random order already
    marks = (np.arange(m) + rng.random()) * (line[-1] / m)
    indices: NDArray[np.int64] = rows[np.minimum(np.searchsorted(line, marks, side="right"), len(rows) - 1)]
    return indices


def _probabilities(scores: Float64, m: int) -> Float64:
    """Return min(1, c scores) with the c that makes them add up to m; a score of 0 counts as next to nothing."""
    scores = scores + 1e-12 * max(float(np.max(scores)), 1e-100)
    if m >= len(scores):
        return np.ones(len(scores))
    ranked = -np.sort(-scores)
    rest = np.cumsum(ranked[::-1])[::-1]  # sum of a score and all below it
    factors = (m - np.arange(m)) / rest[:m]  # c, if the k highest are certain
    certain = int(np.flatnonzero(factors * ranked[:m] <= 1 + 1e-12)[0])
    chances: Float64 = np.minimum(1.0, factors[certain] * scores)
    return chances


def _scores(gram: Gram, rows: NDArray[np.int64], sample: NDArray[np.int64], weights: Float64, rank: int) -> Float64:
    r"""Return :math:`(K - K S (S^T K S + \lambda I)^{-1} S^T K)_{ii} / \lambda` of the rows, in [0, 1]."""
    values, vectors = np.linalg.eigh(gram.entries(sample, sample) * weights * weights[:, None])
    diagonal = gram.diagonal()[rows]
    floor = 1e-12 * max(float(values[-1]), float(np.max(diagonal)), 1e-280)  # the sample may hold rows of zeros alone
    ridge = max(float(np.sum(values[: max(len(values) - rank, 0)])) / rank, floor)
    root = vectors * np.maximum(values + ridge, ridge) ** -0.5  # R R^T = (S^T K S + ridge)^-1
    for block in strips(len(rows), BLOCK):
        coordinates = (gram.entries(rows[block], sample) * weights) @ root
        diagonal[block] -= np.sum(coordinates**2, axis=1)
    return np.clip(diagonal / ridge, 0.0, 1.0)
