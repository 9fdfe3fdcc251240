"""Random streams named by text: the same name and seed give the same stream, in any order, on any machine."""

import hashlib
import json
from typing import Any

import numpy as np


def canonical(value: Any) -> str:
    """Return the JSON of a value that has only one: keys sorted, no spaces, floats with all their digits."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def digest(value: Any) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


def spawn_key(name: str) -> tuple[int, ...]:
    """Return the first four 32-bit words of the name's SHA-256."""
    words = hashlib.sha256(name.encode()).digest()
    return tuple(int.from_bytes(words[i : i + 4], "big") for i in range(0, 16, 4))


def stream(seed: int, name: str, *index: int) -> np.random.SeedSequence:
    """Return the seed sequence of the index-th stream called `name`."""
    return np.random.SeedSequence(seed, spawn_key=(*spawn_key(name), *index))
