"""What tests of pullbacks are given: inputs with all that attention takes, and cotangents."""

import numpy as np

from laws import arrays
from maps import DIM

__all__ = ["inputs", "weights"]


def inputs(n=9, e=3, dtype="float64", scale=0.7):
    """q of grouped heads, k, v; what came before; a mask and segments."""
    shapes = (2, 3, n, DIM), (2, 1, n, DIM), (2, 1, n, e)
    q, k, v = arrays(1, *shapes, dtype=dtype, scale=scale)
    history = arrays(2, (2, 1, 4, DIM), (2, 1, 4, e), dtype=dtype, scale=scale)
    mask, ids = np.arange(n) % 4 != 2, np.arange(n) * 3 // n
    return q, k, v, history, mask, ids


def weights(shape):
    return np.random.default_rng(9).standard_normal(shape)
