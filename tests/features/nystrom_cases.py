"""Rows in clusters, a kernel and the names of methods for tests of Nystrom maps."""

from importlib.util import find_spec

import numpy as np
import pytest

import kernattn as ka

CENTRES = ("kmeans", "minibatch_kmeans")


NEEDS_SKLEARN = pytest.mark.skipif(find_spec("sklearn") is None, reason="scikit-learn is not installed")


NAMES = [
    pytest.param(name, marks=NEEDS_SKLEARN) if name == "minibatch_kmeans" else name for name in ka.features.LANDMARKS
]


GAUSSIAN = ka.kernels.Gaussian(1.5)


def clustered(n=600, seed=0):
    """One large cluster, and many small ones far apart."""
    rng = np.random.default_rng(seed)
    centres = 6 * rng.standard_normal((30, 4))
    sizes = np.array([n // 2] + [1] * 29) + np.bincount(rng.integers(30, size=n - n // 2 - 29), minlength=30) // 3
    rows = np.repeat(np.arange(30), sizes)
    return centres[rows] + 0.2 * rng.standard_normal((len(rows), 4))
