"""Pictures of many images, as PNG."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from files import replace
from numpy.typing import NDArray
from PIL import Image

__all__ = ["completions", "samples", "write"]

PAPER, SHADE, SIZE = 255, 225, 64  # grey levels of paper and of what was not given; pixels of an image, at least


def _ink(tokens: NDArray[np.int64], levels: int, side: int) -> NDArray[np.uint8]:
    """Return grey levels (images, side, side), dark ink on white paper."""
    return (PAPER - tokens.reshape(-1, side, side) * PAPER // (levels - 1)).astype(np.uint8)


def _sheet(rows: list[NDArray[np.uint8]]) -> Image.Image:
    """Return rows of images (columns, side, side) below each other, enlarged, with a gap between them."""
    side = rows[0].shape[-1]
    times = -(-SIZE // side)
    gap = SIZE // 8
    cell = side * times + gap
    sheet = np.full((len(rows) * cell + gap, len(rows[0]) * cell + gap), PAPER, np.uint8)
    sheet[gap - 2 :: cell] = sheet[:, gap - 2 :: cell] = SHADE
    for i, row in enumerate(rows):
        for j, image in enumerate(row):
            large = image.repeat(times, axis=0).repeat(times, axis=1)
            sheet[gap + i * cell :, gap + j * cell :][: len(large), : len(large)] = large
    return Image.fromarray(sheet)


def samples(tokens: NDArray[np.int64], levels: int, side: int, columns: int = 10) -> Image.Image:
    """Return a picture of images that were drawn."""
    ink = _ink(tokens, levels, side)
    return _sheet([ink[i : i + columns] for i in range(0, len(ink) // columns * columns, columns)])


def completions(real: NDArray[np.int64], drawn: NDArray[np.int64], levels: int, side: int) -> Image.Image:
    """Return a picture of real images' upper halves, of completions (times, images, n) of them, and the images."""
    ink = _ink(real, levels, side)
    halves = ink.copy()
    halves[:, side // 2 :] = SHADE
    return _sheet([halves, *(_ink(each, levels, side) for each in drawn), ink])


def write(picture: Image.Image, path: Path) -> None:
    """Write a PNG."""
    replace(path, lambda file: picture.save(file, "png", optimize=True))
