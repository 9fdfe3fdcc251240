"""Bits of a held-out pixel by models that count levels, and see nothing of the image or the pixel before alone.

``python baselines.py`` writes `baselines.json`.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from files import replace
from images import LEVELS, Images, load
from numpy.typing import NDArray

__all__ = ["BASELINES", "KEPT", "of_places", "of_the_pixel_before"]

KEPT = Path(__file__).with_name("baselines.json")
UNSEEN = 0.1  # what is added to each count


def of_places(learnt: Images, held_out: Images, levels: int) -> float:
    """Return the bits where it is known how often each level occurs at each place."""
    counts = np.stack([(learnt.tokens == level).sum(axis=0) for level in range(levels)], axis=-1)
    places = np.arange(counts.shape[0])
    return _bits(_shares(counts)[places, held_out.tokens])


def of_the_pixel_before(learnt: Images, held_out: Images, levels: int) -> float:
    """Return the bits where it is known how often each level follows another; the first pixel follows level 0."""
    counts = np.zeros((levels, levels))
    np.add.at(counts, (_before(learnt.tokens), learnt.tokens), 1)
    return _bits(_shares(counts)[_before(held_out.tokens), held_out.tokens])


def _before(tokens: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.pad(tokens[:, :-1], ((0, 0), (1, 0)))


def _shares(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    counts = counts + UNSEEN
    return counts / counts.sum(axis=-1, keepdims=True)


def _bits(shares: NDArray[np.float64]) -> float:
    return float(-np.log2(shares).mean())


BASELINES = {"how often each level occurs at each place": of_places, "the pixel before": of_the_pixel_before}


def main() -> None:
    found = {
        name: {knows: count(*load(name), levels) for knows, count in BASELINES.items()}
        for name, levels in LEVELS.items()
    }
    replace(KEPT, lambda file: file.write(json.dumps(found, indent=1).encode()))


if __name__ == "__main__":
    main()
