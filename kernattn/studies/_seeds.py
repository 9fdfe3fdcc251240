"""Random streams named by text: the same name and seed give the same stream, in any order, on any machine."""

from __future__ import annotations

import hashlib

import numpy as np

__all__ = ["spawn_key", "stream"]


def spawn_key(name: str) -> tuple[int, ...]:
    """Return the first four 32-bit words of the name's SHA-256."""
    digest = hashlib.sha256(name.encode()).digest()
    return tuple(int.from_bytes(digest[i : i + 4], "big") for i in range(0, 16, 4))


def stream(seed: int, name: str, *index: int) -> np.random.SeedSequence:
    """Return the seed sequence of the index-th stream called `name`."""
    return np.random.SeedSequence(seed, spawn_key=(*spawn_key(name), *index))
