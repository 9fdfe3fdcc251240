"""Weights of quadrature nodes that fit the kernel on data."""

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy_scipy import linalg
from kernattn.features._data import sample_pairs

ROUNDING = 1e-13  # of the largest weight
RIDGE, GAIN = 1e-12, 1e-9  # of the squared length of the values to fit


def fit_weights(omega: Float64, data: Float64) -> tuple[Float64, Float64]:
    """Return the nodes that get weights, and these: nonnegative, best on pairs of rows of data, each with each."""
    x, y = sample_pairs(data, data)
    above = np.triu_indices(len(x), 1)
    delta = np.concatenate([np.zeros((1, data.shape[1])), (x - y)[above]])
    counts = np.sqrt(np.concatenate([[len(x)], np.full(len(above[0]), 2.0)]))
    target = np.exp(-np.sum(delta**2, axis=-1) / 2)
    weights = solve_nonnegative(np.cos(delta @ omega.T) * counts[:, None], target * counts)
    kept = weights > 0
    return omega[kept], weights[kept]


def solve_nonnegative(a: Float64, b: Float64) -> Float64:
    """Return w >= 0 with the least |a w - b|^2, up to what is small beside |b|^2.

    Lawson and Hanson (1974), an entry at a time. It stops where no other entry helps noticeably: with columns that all
    but depend on each other, as here, SciPy's nnls goes on from there in circles, and raises.
    """
    size = b @ b
    gram, target = a.T @ a + RIDGE * size * np.eye(a.shape[1]), a.T @ b
    w, positive, refused = np.zeros(a.shape[1]), np.zeros(a.shape[1], bool), np.zeros(a.shape[1], bool)
    for _ in range(3 * len(w)):
        gradient = np.where(positive | refused, -np.inf, target - gram @ w)
        best = np.argmax(gradient)
        if gradient[best] <= GAIN * size:
            break
        positive[best] = True
        while True:
            wanted = np.zeros_like(w)
            wanted[positive] = linalg.solve(gram[np.ix_(positive, positive)], target[positive], assume_a="pos")
            falling = positive & (wanted <= 0)
            if not falling.any():
                break
            w += np.min(w[falling] / (w[falling] - wanted[falling])) * (wanted - w)
            positive &= w > ROUNDING * np.max(w)
            w[~positive] = 0.0
        w = wanted
        refused = refused & ~positive[best]
        refused[best] = not positive[best]
    return w
