"""Consistent samples of all sets, for a block of features: the numbers of members lie in the second-level cache."""

import math

import numpy as np

from kernattn.ops._numba.codegen.bits import floor
from kernattn.ops._numba.codegen.compile import compiled, inner
from kernattn.ops._numba.codegen.memory import aligned, whole
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import every, load, store, where
from kernattn.ops.minwise.words import FIRST, SECOND, STEP

BLOCK = 16  # features
PER_WORD = 2.0**-32


@inner
def _mixed(word):
    """Return `words.mixed` of one word."""
    u32 = np.uint32
    word = u32(u32(word ^ u32(word >> u32(16))) * u32(FIRST))
    word = u32(u32(word ^ u32(word >> u32(15))) * u32(SECOND))
    return u32(word ^ u32(word >> u32(16)))


@inner
def _uniform(word, step):
    """Return a number in (0, 1) of a word."""
    return (_mixed(np.uint32(word + np.uint32(step * STEP))) + 0.5) * PER_WORD


@inner
def _draw(member, keys, start, words, numbers, at):
    """Write what a member draws for a block of features: r, 1 / r, beta and log c + r (beta - 1)."""
    u32 = np.uint32
    for j in range(BLOCK):
        word = u32(u32(member ^ keys[0, start + j]) * keys[1, start + j])
        word = u32(u32(word ^ u32(word >> u32(15))) * u32(SECOND))
        r = -math.log(_uniform(word, 1) * _uniform(word, 2))
        c, beta = -math.log(_uniform(word, 3) * _uniform(word, 4)), _uniform(word, 5)
        words[at * BLOCK + j] = word
        to = 4 * at * BLOCK + j
        numbers[to], numbers[to + BLOCK], numbers[to + 2 * BLOCK] = r, 1 / r, beta
        numbers[to + 3 * BLOCK] = math.log(c) + r * (beta - 1)


@inner
def _sample(places, logs, begin, end, numbers, least, level, winner):
    """Write the least first arrivals of the entries of a set, their levels, and whose they are."""
    for j in range(0, BLOCK, lanes(numbers)):
        best, t_best, place_best = load(least, j), load(level, j), load(winner, j)
        for e in range(begin, end):
            at = 4 * places[e] * BLOCK + j
            t = floor(logs[e] * load(numbers, at + BLOCK) + load(numbers, at + 2 * BLOCK))
            first = load(numbers, at + 3 * BLOCK) - load(numbers, at) * t
            sooner = first < best
            best, t_best = where(sooner, first, best), where(sooner, t, t_best)
            place_best = where(sooner, every(place_best, places[e]), place_best)
        store(t_best, level, j)
        store(place_best, winner, j)


@compiled
def write_samples(starts, places, logs, members, keys, out, size, low, high):
    """Write size or -size for all sets and blocks low to high of features to out (n, M); keys (2, M) are padded."""
    u32, like = np.uint32, whole(logs)
    words, numbers = np.empty(members.size * BLOCK, np.uint32), aligned(4 * members.size * BLOCK, like)
    least, level, winner = aligned(BLOCK, like), aligned(BLOCK, like), np.empty(BLOCK, np.int32)
    for j in range(BLOCK):
        least[j], level[j], winner[j] = math.inf, 0, 0
    for block in range(low, high):
        start = block * BLOCK
        for u in range(members.size):
            _draw(members[u], keys, start, words, numbers, u)
        for i in range(starts.size - 1):
            _sample(places, logs, starts[i], starts[i + 1], numbers, least, level, winner)
            for j in range(min(BLOCK, out.shape[1] - start)):
                step = u32(u32(np.int64(level[j])) * u32(STEP))
                word = _mixed(u32(words[winner[j] * BLOCK + j] + step))
                bit = u32(u32(word >> u32(16)) ^ word) & u32(1)
                out[i, start + j] = size if bit == u32(1) else -size
