"""A small classifier of real digits says how sure it is of images that were drawn, and which digits it sees."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from images import LEVELS, Images
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier

__all__ = ["Judge", "Verdict", "independent_pixels"]


class Verdict(NamedTuple):
    """Mean probability of the likeliest digit; how many images are taken for each digit; share of right ones."""

    confidence: float
    counts: list[int]
    accuracy: float | None


class Judge:
    """A network with one hidden layer, which learns from the same images as the models."""

    def __init__(self, name: str, learnt: Images) -> None:
        self.scale = LEVELS[name] - 1
        network = MLPClassifier((64,), tol=3e-3, max_iter=200, random_state=0)
        self.network = network.fit(learnt.tokens / self.scale, learnt.labels)

    def __call__(self, tokens: NDArray[np.int64], labels: NDArray[np.int64] | None = None) -> Verdict:
        """Return the verdict on images."""
        sure = self.network.predict_proba(tokens / self.scale)
        seen = np.argmax(sure, axis=1)
        accuracy = None if labels is None else float(np.mean(seen == labels))
        return Verdict(float(sure.max(axis=1).mean()), np.bincount(seen, minlength=10).tolist(), accuracy)


def independent_pixels(learnt: Images, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return images of which each pixel comes from another real image: what no model has to know."""
    n, side2 = learnt.tokens.shape
    return learnt.tokens[rng.integers(n, size=(count, side2)), np.arange(side2)]
