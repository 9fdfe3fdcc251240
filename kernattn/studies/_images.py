"""Rows of real data: the digits and patches of the photographs that scikit-learn ships."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import one_of, positive_integer
from kernattn._runtime.extras import require
from kernattn._runtime.random import RNG, generator
from kernattn.errors import ParameterError

PATCH = 8
MOST_DIGITS = 1797  # as many as there are
MOST_PATCHES = (427 - PATCH + 1) * (640 - PATCH + 1)  # of a photograph
REAL_ROWS = ("digits", "patches", "pixels")


def _datasets() -> Any:
    return require("sklearn.datasets", "scikit-learn", "real data")


def photograph(name: str) -> Float64:
    """Return "china" or "flower", (427, 640, 3), with levels up to 255."""
    require("PIL", "pillow", "a photograph")
    return np.asarray(_datasets().load_sample_image(f"{name}.jpg"), dtype=np.float64)


def patches(image: Float64, count: int, rng: np.random.Generator) -> tuple[Float64, Float64]:
    """Return patches (count, D) at random places of an image, and the places: row and column of a corner (count, 2)."""
    windows = np.lib.stride_tricks.sliding_window_view(image, (PATCH, PATCH), axis=(0, 1))
    rows, columns = windows.shape[:2]
    corners = rng.choice(rows * columns, size=count, replace=False)
    row, column = corners // columns, corners % columns
    return windows[row, column].reshape(count, -1), np.stack([row, column], axis=1).astype(np.float64)


def raster(image: Float64, count: int, rng: np.random.Generator) -> tuple[Float64, Float64]:
    """Return patches (count, D) on a grid over the whole image, row by row, and their places (count, 2).

    A patch lies anywhere inside its box of the grid, so neighbours among the tokens are neighbours in the image.
    """
    windows = np.lib.stride_tricks.sliding_window_view(image, (PATCH, PATCH), axis=(0, 1))
    height, width = windows.shape[:2]
    columns = int(np.ceil(np.sqrt(count * width / height)))
    rows = -(-count // columns)
    i, j = np.divmod(np.arange(count), columns)
    corners = [
        rng.integers(each * length // boxes, (each + 1) * length // boxes)
        for each, length, boxes in ((i, height, rows), (j, width, columns))
    ]
    return windows[corners[0], corners[1]].reshape(count, -1), np.stack(corners, axis=1).astype(np.float64)


def digits() -> tuple[Float64, Float64]:
    """Return images of 8 x 8 pixels (1797, 64), entries 0 to 1, and which digit each is: one-hot (1797, 10)."""
    digits = _datasets().load_digits()
    return digits.data / 16, np.eye(10)[digits.target]


def real_rows(name: str, count: int, rng: RNG = None) -> Float64:
    r"""Return rows of real data in random order, (count, 64): digits, or grey patches of 8 x 8 of two photographs.

    A patch :math:`p` becomes :math:`(p - mean) / (variance + 10)^{1/2}`, which takes brightness and contrast out
    (Coates, Ng and Lee 2011); for "pixels" each pixel is standardised over the patches instead.

    Parameters
    ----------
    name : {"digits", "patches", "pixels"}
        Which data.
    count : int
        Rows, at least 2 for "pixels"; of digits there are 1797.
    rng : None, int, numpy.random.SeedSequence or numpy.random.Generator
        Which rows, and their order; None takes fresh randomness.
    """
    name, count, source = one_of("name", name, REAL_ROWS), positive_integer("count", count), generator(rng)
    least, most = 1 + (name == "pixels"), MOST_DIGITS if name == "digits" else 2 * MOST_PATCHES
    if not least <= count <= most:
        raise ParameterError(f"count must lie in {least}..{most}, for there are no more {name}; got {count}")
    if name == "digits":
        return source.permutation(digits()[0])[:count]
    grey = (photograph(each) @ np.array([0.299, 0.587, 0.114]) for each in ("china", "flower"))
    counts = (count - count // 2, count // 2)
    parts = [patches(image, part, source)[0] for image, part in zip(grey, counts, strict=True)]
    x = source.permutation(np.concatenate(parts))
    if name == "pixels":
        return np.asarray((x - x.mean(axis=0)) / x.std(axis=0))
    return np.asarray((x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 10))
