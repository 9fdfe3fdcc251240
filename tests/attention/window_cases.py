"""Maps and tokens for attention with a window, the matrix of its weights, and sequences in pieces."""

from dataclasses import dataclass

import numpy as np

import kernattn as ka
from kernattn.features import FeatureMap, MapSpec, ScaledFeatures
from laws import arrays
from xp import to_numpy

A = ka.attention


@dataclass(frozen=True, eq=False)
class Squares(FeatureMap):
    """1 + x^2, which no spec says."""

    dim = None

    def num_features_of(self, dim):
        return dim

    def scaled_query(self, x):
        return ScaledFeatures(1 + x**2, x[..., :1] * 0)

    def redraw(self, rng=None):
        return self


POSITIVE = ka.random_features(ka.kernels.Softmax(), 4, 16, "positive", rng=1)
SOFTMAX_OVER_FEATURES = MapSpec("exp", POSITIVE.spec.omega, offset=np.linspace(-1, 1, 16), normalised=True)
FITTED = ka.features.Fitted(ka.kernels.Softmax(), "hedgehog", SOFTMAX_OVER_FEATURES, None, 0.1, "positive", 0.2)
MAPS = {
    "positive": POSITIVE,
    "trigonometric": ka.random_features(ka.kernels.Softmax(), 4, 64, "trigonometric", rng=1),
    "another scale": ka.random_features(ka.kernels.Softmax(0.9), 4, 16, "positive", rng=1),
    "elu1": ka.features.elu1(),
    "computed": Squares(),
}
N = 150


def oracle(q, k, v, phi, window, ids=None, bias=0.0):
    """The matrix of weights, in float64."""
    q, k, v = map(to_numpy, (q, k, v))
    i, j = np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])
    scale = getattr(getattr(phi, "kernel", None), "scale", None) or 0.5
    exact = np.exp(scale * q @ np.swapaxes(k, -1, -2) + np.asarray(bias)[..., None, None])
    weights = np.where(j > i - window, exact, phi.query(q) @ np.swapaxes(phi.key(k), -1, -2)) * (j <= i)
    if ids is not None:
        weights = weights * (ids[..., :, None] == ids[..., None, :])
    total = weights.sum(axis=-1, keepdims=True)
    return np.where(total == 0, 0, weights @ v / np.where(total == 0, 1, total))


def tokens(n=N, dtype="float64", seed=1):
    """Two sequences of two groups of two heads."""
    return arrays(seed, (2, 2, 2, n, 4), (2, 2, 1, n, 4), (2, 2, 1, n, 3), dtype=dtype)


def pieces(cuts, given, phi, window, state=None, **options):
    """The outputs of a sequence that is handed over in pieces, and the last state."""
    outs = []
    for low, high in zip((0, *cuts), (*cuts, N), strict=True):
        rows = {name: x[..., low:high] for name, x in options.items() if name in ("key_mask", "segment_ids")}
        some = [x[..., low:high, :] for x in given]
        out, state = A.window_attention(*some, phi, window, state=state, **(options | rows))
        outs.append(out)
    return np.concatenate(outs, axis=-2), state
