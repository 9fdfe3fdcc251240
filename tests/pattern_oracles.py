"""Float64 NumPy oracles of patterns: does row i see key j? And of attention by hashes and by centroids."""

import numpy as np

from oracles import softmax_attention


def local(i, j, left, right, dilation=1):
    return (-left <= j - i) & (j - i <= right) & ((j - i) % dilation == 0)


def strided(i, j, window, stride):
    return ((-window < j - i) & (j <= i)) | ((j <= i) & ((i - j) % stride == 0))


def fixed(i, j, block, columns):
    return (j <= i) & ((i // block == j // block) | (j % block >= block - columns))


def block_permutation(i, j, block, permutation):
    return np.asarray(permutation)[i // block] == j // block


def longformer(i, j, left, right, tokens, dilation=1):
    return local(i, j, left, right, dilation) | np.isin(i, tokens) | np.isin(j, tokens)


def bigbird_always(i, j, block, length):
    """All but the random blocks."""
    a, b, last = i // block, j // block, (length - 1) // block
    return (abs(a - b) <= 1) | (b == 0) | (b == last) | (a == 0) | (a == last)


def image_1d(i, j, block, memory):
    begin = i // block * block
    return (j // block == i // block) | ((begin - memory <= j) & (j < begin))


def image_2d(i, j, shape, block, flange, order):
    (_, width), (tall, wide), (left, right, top) = shape, block, flange
    (y, x), (v, u) = divmod(i, width), divmod(j, width)
    a, b = y // tall * tall, x // wide * wide
    near = (a - top <= v) & (v < a + tall) & (b - left <= u) & (u < b + wide + right)
    if order == "raster":
        return near
    across = -(-width // wide)
    own, other = y // tall * across + x // wide, v // tall * across + u // wide
    return near & ((other < own) | ((other == own) & (j <= i)))


def axial(i, j, shape, axis):
    at, other = np.unravel_index(i, shape), np.unravel_index(j, shape)
    return np.all([a == b for n, (a, b) in enumerate(zip(at, other, strict=True)) if n != axis], axis=0)


def neighborhood(i, j, shape, size):
    found = True
    for a, b, whole, wide in zip(np.unravel_index(i, shape), np.unravel_index(j, shape), shape, size, strict=True):
        begin = np.clip(a - wide // 2, 0, whole - wide)
        found = found & (begin <= b) & (b < begin + wide)
    return found


def sinks(i, j, count):
    return (j < count) & (i >= 0)


def prefix(i, j, length):
    return (j < length) | (j <= i)


def documents(i, j, ids):
    return np.asarray(ids)[i] == np.asarray(ids)[j]


def lsh(i, j, x, rotations, chunk):
    """Do the tokens share a chunk, or is that of j the one before, in some round?"""
    found = False
    for rotation in rotations:
        buckets = np.argmax(np.concatenate([x @ rotation, -x @ rotation], axis=-1), axis=-1)
        place = np.empty(len(x), int)
        place[np.lexsort((np.arange(len(x)), buckets))] = np.arange(len(x))
        apart = place[i] // chunk - place[j] // chunk
        found = found | (apart == 0) | (apart == 1)
    return found


def lsh_attention(x, v, rotations, chunk, *, causal=False, scale=None, key_mask=None):
    """One head; what is hidden is taken out before."""
    out, there = np.zeros_like(v), np.arange(len(x)) if key_mask is None else np.flatnonzero(key_mask)
    if len(there) == 0:
        return out
    x, v, i = x[there], v[there], np.arange(len(there))
    sees = lsh(i[:, None], i, x, rotations, chunk) & (i[:, None] != i)
    if causal:
        sees &= i <= i[:, None]
    sees |= ~sees.any(axis=1, keepdims=True) & (i[:, None] == i)
    norm = np.linalg.norm(x, axis=-1, keepdims=True)
    out[there], _ = softmax_attention(x, x / np.where(norm == 0, 1, norm), v, scale=scale, may=sees)
    return out


def _cosines(x, centroids):
    return x @ centroids.T / np.linalg.norm(x, axis=-1, keepdims=True) / np.linalg.norm(centroids, axis=-1)


def routing_by_centroids(q, k, v, centroids, window, *, causal=False, scale=None):
    """One head: each centroid takes queries and keys; the mean over those where a query sees a key."""
    n, length = len(q), len(k)
    total, counts = np.zeros((n, v.shape[1])), np.zeros((n, 1))
    for of_q, of_k in zip(_cosines(q, centroids).T, _cosines(k, centroids).T, strict=True):
        rows, keys = np.argsort(-of_q)[:window], np.argsort(-of_k)[:window]
        sees = (keys <= rows[:, None] + length - n) if causal else np.ones((len(rows), len(keys)), bool)
        total[rows] += softmax_attention(q[rows], k[keys], v[keys], scale=scale, may=sees)[0]
        counts[rows] += sees.any(axis=1, keepdims=True)
    return total / np.maximum(counts, 1)


def routing_by_tokens(q, k, v, centroids, window, *, causal=False, scale=None):
    """One head: each query sees some keys of its own cluster about it."""
    n, length = len(q), len(k)
    of_q, of_k = _cosines(q, centroids).argmax(axis=1), _cosines(k, centroids).argmax(axis=1)
    sees = np.zeros((n, length), bool)
    for row in range(n):
        keys, at = np.flatnonzero(of_k == of_q[row]), row + length - n
        if causal:
            keys = keys[keys <= at][-window:]
        else:
            begin = min(np.sum(keys < at) - window // 2, len(keys) - window)
            keys = keys[max(begin, 0) :][:window]
        sees[row, keys] = True
    return softmax_attention(q, k, v, scale=scale, may=sees)[0]
