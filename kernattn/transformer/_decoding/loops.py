"""A decoding step of all layers: weights are read once, in one sweep, panel by panel.

A panel of WIDE columns is contiguous, inner index by inner index, and panels follow each other. With one row the sweep
is bound by reading; with many, a panel is used by all rows while it is in cache. Sums run in the order of the
inner index whatever the rows beside: a sequence has the same bits in every batch.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner
from kernattn.ops._numba.codegen.memory import aligned, pad, window
from kernattn.ops._numba.codegen.registers import LINE, ROWS, VECTOR
from kernattn.ops._numba.helper_threads import close, offer_of, open_, taken
from kernattn.ops._numba.tiles.products import FULL, product, register_block
from kernattn.ops.step.loops import advance_heads
from kernattn.transformer._decoding.rows_loops import activated, added, exponentials, normed

WIDE = 64
"""Columns of a panel of weights."""
KEYS = 32
"""Keys of a panel of the cache of exact attention."""

_line = register_block(1, 4 * WIDE // VECTOR)


@inner
def _tall(rows):
    """Return how many rows products of so many may write."""
    return pad(rows, ROWS) if rows > 1 else 1


@inner
def _times(w, at, x, x_row, rows, depth, columns, y, y_row):
    """Write y = x W + b, and return where the weights after these begin."""
    wide = pad(columns, WIDE)
    for j in range(0, wide, WIDE):
        if rows == 1:
            _line(x, 0, 0, 1, w, at, WIDE, y, j, 0, depth, False)
        else:
            product(x, 0, x_row, 1, w, at, WIDE, y, j, y_row, rows, WIDE, depth, False, FULL)
        at += WIDE * depth
    bias = window(w, at, wide)
    for i in range(rows):
        row = window(y, i * y_row, wide)
        for j in range(wide):
            row[j] += bias[j]
    return at + wide


@inner
def _heads(x, x_row, rows, skip, heads, d, turns, y):
    """Copy heads (rows, heads, d) out of wide rows, turned by rotary positions where there are some."""
    half = d // 2
    for i in range(rows):
        for h in range(heads):
            a, b = window(x, i * x_row + skip + h * d, d), window(y, (i * heads + h) * d, d)
            if turns.size == 0:
                for j in range(d):
                    b[j] = a[j]
            else:
                cos, sin = window(turns, i * d, half), window(turns, i * d + half, half)
                for j in range(half):
                    b[j] = a[j] * cos[j] - a[half + j] * sin[j]
                    b[half + j] = a[half + j] * cos[j] + a[j] * sin[j]


@inner
def _exact(q, k, v, count, sizes, cache_k, cache_v, capacity, lengths, out, parts, memory):
    """Attend to all keys of each sequence, after the new one is put beside them."""
    kv, group, d = sizes[3], sizes[2] // sizes[3], sizes[4]
    scale = q.dtype.type(1 / math.sqrt(d))
    row, wide = capacity, pad(d, KEYS)
    tall = _tall(group)
    queries = window(memory, 0, tall * d)
    total = window(memory, tall * d, tall * wide)
    scores = window(memory, tall * (d + wide), tall * row)
    normalisers = window(memory, tall * (d + wide + row), group)
    for h in range(count * kv):
        t, begin = lengths[h // kv], h * capacity * d
        panel = begin + t // KEYS * KEYS * d + t % KEYS
        for i in range(d):
            cache_k[panel + i * KEYS] = k[h * d + i]
            cache_v[begin + t * d + i] = v[h * d + i]
        for i in range(group * d):
            queries[i] = q[h * group * d + i] * scale
        for p in range(0, t + 1, KEYS):
            product(queries, 0, d, 1, cache_k, begin + p * d, KEYS, scores, p, row, group, KEYS, d, False, FULL)
        for g in range(group):
            normalisers[g] = exponentials(window(scores, g * row, row), t + 1, parts)
        product(scores, 0, row, 1, cache_v, begin, d, total, 0, wide, group, d, t + 1, False, FULL)
        for g in range(group):
            for i in range(d):
                out[(h * group + g) * d + i] = total[g * wide + i] / normalisers[g]


@inner
def _map(maps, layer, side):
    """Return the map of a layer, for queries (0) or keys (1)."""
    numbers, constants, table = maps
    at = 8 * layer + 4 * side
    return window(numbers, table[at], table[at + 1]), window(constants, table[at + 2], table[at + 3])


@inner
def _sequences(sizes, eps, weights, maps, capacity, memories, places, lengths, turns, x, out, low, high):
    """Take a token of sequences low to high through all layers."""
    dim, heads, kv, d, hidden, columns = sizes[1], sizes[2], sizes[3], sizes[4], sizes[5], sizes[9]
    rows, tall = high - low, _tall(high - low)
    table = np.arange(2 * rows * (kv + heads))  # heads lie in order: of k, v, q and out
    for i in range(rows * kv):
        table[rows * kv + i] = i
    for i in range(rows * heads):
        table[2 * rows * kv + i] = i
        table[2 * rows * kv + rows * heads + i] = i
    across, wide = pad((heads + 2 * kv) * d, WIDE), 3 * pad(dim, WIDE) + 2 * pad(hidden, WIDE) + pad(columns, WIDE)
    scratch = _tall(heads // kv) * (d + pad(d, KEYS) + capacity + 1)
    memory = aligned(tall * (wide + across + 2 * (heads + kv) * d) + LINE + scratch, weights)
    arguments = (sizes, eps, weights, maps, capacity, memories, places, lengths, turns, x, out)
    _through(*(arguments + (table, memory, low, high)))  # noqa: RUF005


@inner
def _through(sizes, eps, weights, maps, capacity, memories, places, lengths, turns, x, out, table, memory, low, high):
    """Do what `_sequences` does, in memory that outlives its windows."""
    layers, dim, heads, kv, d = sizes[0], sizes[1], sizes[2], sizes[3], sizes[4]
    hidden, activation, centred, first, columns = sizes[5], sizes[6], sizes[7] > 0, sizes[8] > 0, sizes[9]
    rows, tall = high - low, _tall(high - low)
    width, across, joined = pad(dim, WIDE), pad((heads + 2 * kv) * d, WIDE), heads * d
    up, last = pad(hidden, WIDE), pad(columns, WIDE)
    parts = window(memory, 0, LINE)
    at = LINE
    rows_x, plain, more = (
        window(memory, at, tall * width),
        window(memory, at + tall * width, tall * width),
        window(memory, at + 2 * tall * width, tall * width),
    )
    at += 3 * tall * width
    qkv = window(memory, at, tall * across)
    at += tall * across
    wide_up, gate = window(memory, at, tall * up), window(memory, at + tall * up, tall * up)
    at += 2 * tall * up
    logits = window(memory, at, tall * last)
    at += tall * last
    q, attended = window(memory, at, tall * joined), window(memory, at + tall * joined, tall * joined)
    at += 2 * tall * joined
    k, v = window(memory, at, tall * kv * d), window(memory, at + tall * kv * d, tall * kv * d)
    at += 2 * tall * kv * d
    spare = window(memory, at, memory.size - at)
    turned = window(turns, low * d if turns.size > 0 else 0, rows * d if turns.size > 0 else 0)
    none = window(weights, 0, 0)
    no_mask = np.zeros(0, np.bool_)
    for i in range(rows):
        for j in range(dim):
            rows_x[i * width + j] = x[(low + i) * dim + j]
    at = 0
    for layer in range(layers):
        source = rows_x
        if first:
            at = normed(weights, at, rows_x, rows, dim, width, centred, eps, plain, parts)
            source = plain
        at = _times(weights, at, source, width, rows, dim, (heads + 2 * kv) * d, qkv, across)
        _heads(qkv, across, rows, 0, heads, d, turned, q)
        _heads(qkv, across, rows, heads * d, kv, d, turned, k)
        _heads(qkv, across, rows, (heads + kv) * d, kv, d, none, v)
        s_at, z_at, peak_at = places[5 * layer], places[5 * layer + 1], places[5 * layer + 2]
        features, peaks = places[5 * layer + 3], places[5 * layer + 4]
        if features > 0:
            begin, count = low * kv, rows * kv
            sums = (
                window(memories, s_at + begin * features * d, count * features * d),
                window(memories, z_at + begin * features, count * features),
                window(memories, peak_at + begin * peaks, count * peaks),
            )
            tokens = (q, k, v, none)
            advance_heads(
                _map(maps, layer, 0), _map(maps, layer, 1), tokens, no_mask, table, sums, attended, sums, 0, count
            )
        else:
            size = rows * kv * capacity * d
            cache_k = window(memories, s_at + low * kv * capacity * d, size)
            cache_v = window(memories, z_at + low * kv * capacity * d, size)
            _exact(q, k, v, rows, sizes, cache_k, cache_v, capacity, window(lengths, low, rows), attended, parts, spare)
        at = _times(weights, at, attended, joined, rows, joined, dim, more, width)
        added(rows_x, more, rows * width)
        at = normed(weights, at, rows_x, rows, dim, width, centred, eps, plain, parts)
        if not first:
            for i in range(rows * width):
                rows_x[i] = plain[i]
        if activation == 3:
            at = _times(weights, at, plain, width, rows, dim, hidden, gate, up)
        at = _times(weights, at, plain, width, rows, dim, hidden, wide_up, up)
        activated(activation, wide_up, gate, rows * up)
        at = _times(weights, at, wide_up, up, rows, hidden, dim, more, width)
        added(rows_x, more, rows * width)
        if not first:
            at = normed(weights, at, rows_x, rows, dim, width, centred, eps, plain, parts)
            for i in range(rows * width):
                rows_x[i] = plain[i]
    result, stride = rows_x, width
    if first:
        at = normed(weights, at, rows_x, rows, dim, width, centred, eps, plain, parts)
        result = plain
    if sizes[10] > 0:
        _times(weights, at, result, width, rows, dim, columns, logits, last)
        result, stride = logits, last
    for i in range(rows):
        for j in range(columns):
            out[(low + i) * columns + j] = result[i * stride + j]


@inner
def _slab(arguments, low, high):
    _sequences(*(arguments + (low, high)))  # noqa: RUF005


_offer = offer_of(_slab)


@compiled
def decode(sizes, eps, weights, maps, capacity, memories, places, lengths, turns, x, out, board, slabs):
    """Take a token of every sequence through all layers, and write rows or logits to `out`.

    Sizes are layers, dim, heads, heads of keys, d, hidden, the activation, whether norms take means off and stand
    before their part, columns of the output, and whether this is of a matrix. Exact attention has room for `capacity`
    tokens. `places` says for each layer where its sums s, z and peaks begin in `memories`, or its keys and values, and
    how many features and peaks there are: no features are exact attention. `turns` holds cosines and sines (B, d), or
    nothing.
    """
    arguments = (sizes, eps, weights, maps, capacity, memories, places, lengths, turns, x, out)
    if slabs < 2 or taken(board):
        _sequences(*(arguments + (0, lengths.size)))  # noqa: RUF005
    else:
        _offer(board, arguments)
        open_(board, slabs, lengths.size)
        close(board)
