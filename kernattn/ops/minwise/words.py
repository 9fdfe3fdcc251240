"""Hashes of 32 bits in NumPy, and their constants."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Words: TypeAlias = NDArray[np.uint32]

FIRST, SECOND = 0x7FEB352D, 0x846CA68B
"""Multipliers of Wellons' "lowbias32", a mix of 32 bits found by search for the least bias of its output bits."""

STEP = 0x9E3779B9
"""What is added to a word for the next of a sequence: odd, and near 2^32 over the golden ratio."""


def mixed(words: Words) -> Words:
    """Return a permutation of all words of 32 bits, each bit of which depends on every bit of its word."""
    words = (words ^ (words >> np.uint32(16))) * np.uint32(FIRST)
    words = (words ^ (words >> np.uint32(15))) * np.uint32(SECOND)
    result: Words = words ^ (words >> np.uint32(16))
    return result


def keyed(words: Words, keys: Words) -> Words:
    """Return the hashes h_j(b) of words (E,) by keys (2, M), (E, M)."""
    hashes = (words[:, None] ^ keys[0]) * keys[1]
    result: Words = (hashes ^ (hashes >> np.uint32(15))) * np.uint32(SECOND)
    return result


def signs(words: Words, size: float, dtype: Any) -> NDArray[Any]:
    """Return size or -size for every word, by its last bit mixed with those above."""
    bits = ((words >> np.uint32(16)) ^ words) & np.uint32(1)
    return np.where(bits == 1, np.asarray(size, dtype), np.asarray(-size, dtype))
