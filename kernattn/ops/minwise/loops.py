"""Minwise hashes: the least ones of a block of features stay in the first-level cache while all members are hashed."""

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled
from kernattn.ops.minwise.words import SECOND

BLOCK = 64  # features: 8 registers of 8 hashes
MOST = np.uint32(2**32 - 1)
MULTIPLIER = np.uint32(SECOND)


@compiled
def write_signs(starts, members, keys, out, size, low, high):
    """Write size or -size for sets low to high to out (n, M); keys (2, M) are padded to whole blocks."""
    u32, features = np.uint32, out.shape[1]
    least = np.empty(BLOCK, np.uint32)
    for i in range(low, high):
        for first in range(0, features, BLOCK):
            adds, factors = keys[0, first : first + BLOCK], keys[1, first : first + BLOCK]
            for j in range(BLOCK):
                least[j] = MOST
            for t in range(starts[i], starts[i + 1]):
                member = members[t]
                for j in range(BLOCK):
                    word = u32(u32(member ^ adds[j]) * factors[j])
                    word = u32(u32(word ^ u32(word >> u32(15))) * MULTIPLIER)
                    least[j] = min(least[j], word)
            for j in range(min(BLOCK, features - first)):
                word = least[j]
                bit = u32(u32(word >> u32(16)) ^ word) & u32(1)
                out[i, first + j] = size if bit == u32(1) else -size
