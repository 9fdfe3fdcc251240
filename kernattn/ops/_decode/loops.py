"""A decoding step of all layers: weights are read once, in one sweep, panel by panel.

A panel of WIDE columns is contiguous, inner index by inner index, and panels follow each other. With one row the sweep
is bound by reading; with many, a panel is used by all rows while it is in cache. Sums run in the order of the
inner index whatever the rows beside: a sequence has the same bits in every batch.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from kernattn.ops._decode.experts_loops import experts_of, mix_experts
from kernattn.ops._decode.gated_loops import WIDE, convolve, gate_and_normalise, mixer_of, recur
from kernattn.ops._decode.heads_loops import (
    FEATURES,
    FIRST_MAP,
    OWN_MAPS,
    PEAK,
    PEAKS,
    PLACE_COLUMNS,
    S,
    Z,
    attend_by_heads,
    map_of,
)
from kernattn.ops._decode.rows_loops import SWIGLU, activate, add_rows, exponentials, normalise, normalise_heads
from kernattn.ops._decode.weights_loops import DEPTH, Weights, blocks, multiply
from kernattn.ops._numba.codegen.compile import compiled, inner, phase
from kernattn.ops._numba.codegen.elementary import exponential
from kernattn.ops._numba.codegen.memory import aligned, pad, window
from kernattn.ops._numba.codegen.registers import LINE
from kernattn.ops._numba.helper_threads import close_board, make_offer, share_slabs, take_board
from kernattn.ops._numba.tiles.products import FULL, product
from kernattn.ops.step.loops import advance_heads

KEYS = 32
"""Keys of a panel of the cache of exact attention."""

CACHE_K, CACHE_V = S, Z
STATE, PAST = S, Z
"""Where keys and values of exact attention lie, or the states of a gated layer and what its convolution needs."""


class Sizes(NamedTuple):
    """Sizes and choices of a transformer, in the order of the numbers that `decode` takes."""

    layers: Any
    dim: Any
    heads: Any
    key_heads: Any
    head_width: Any
    hidden: Any
    activation: Any  # its place in `rows_loops.ACTIVATIONS`
    centred: Any  # do norms take means off?
    norm_first: Any  # do they stand before their part, and at the end of all layers?
    columns: Any  # of the output
    projected: Any  # is the output logits, by a matrix?
    turned: Any  # numbers of a head that rotary positions turn
    head_norm: Any  # are queries and keys normalised?
    head_gate: Any  # is what heads attend to gated?
    joint: Any  # columns of the widest matrix of queries, keys, values and more
    mixed: Any  # numbers of what heads return, where they are most
    inside: Any  # of the feed-forward part, or of factors of low rank, where they are most
    scratch: Any  # of a layer of gated linear attention, or of experts
    kind: Any  # of the bits of matrices, 0 where these are floats


class Tiles(NamedTuple):
    """Rows of some sequences on their way through a layer, windows of one memory."""

    parts: Any  # one line, for sums of vectors
    block: Any  # of widened weights
    x: Any  # (rows, width), what layers add to
    normal: Any  # the same, normalised
    more: Any  # what is added next
    qkv: Any  # (rows, across)
    up: Any  # (rows, up)
    gate: Any
    logits: Any  # (rows, last)
    q: Any  # (rows, heads, d)
    attended: Any
    k: Any  # (rows, heads of keys, d)
    v: Any
    spare: Any  # the rest
    width: Any
    across: Any
    up_width: Any
    last: Any


@inner
def _copy_heads(x, x_row, rows, skip, heads, d, y):
    """Copy heads (rows, heads, d) out of wide rows."""
    for i in range(rows):
        for h in range(heads):
            a, b = window(x, i * x_row + skip + h * d, d), window(y, (i * heads + h) * d, d)
            for j in range(d):
                b[j] = a[j]


@inner
def _rotate_heads(x, rows, heads, d, turned, turns):
    """Turn the first numbers of heads (rows, heads, d) by rotary positions, where there are some."""
    half = turned // 2
    for i in range(rows if turns.size > 0 else 0):
        cos, sin = window(turns, i * turned, half), window(turns, i * turned + half, half)
        for h in range(heads):
            a, b = window(x, (i * heads + h) * d, half), window(x, (i * heads + h) * d + half, half)
            for j in range(half):
                first, second = a[j], b[j]
                a[j] = first * cos[j] - second * sin[j]
                b[j] = second * cos[j] + first * sin[j]


@inner
def _gate_heads(x, width, rows, joint, row, skip):
    """Multiply rows (rows, width) by the sigmoid of their columns of wide rows."""
    one = x.dtype.type(1)
    for i in range(rows):
        y, gate = window(x, i * width, width), window(joint, i * row + skip, width)
        for j in range(width):
            y[j] /= one + exponential(-gate[j])


@inner
def _attend_exactly(q, k, v, count, sizes, cache_k, cache_v, capacity, lengths, out, parts, memory):
    """Attend to all keys of each sequence, after the new one is put beside them."""
    kv, group, d = sizes.key_heads, sizes.heads // sizes.key_heads, sizes.head_width
    scale = q.dtype.type(1 / math.sqrt(d))
    row, wide = capacity, pad(d, KEYS)
    tall = blocks(group)
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
def _read_sizes(numbers):
    """Return sizes by their names."""
    return Sizes(
        numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6], numbers[7], numbers[8],
        numbers[9], numbers[10], numbers[11], numbers[12], numbers[13], numbers[14], numbers[15], numbers[16],
        numbers[17], numbers[18],
    )  # fmt: skip


@inner
def _run_sequences(sizes, eps, weights, maps, kinds, capacity, memories, places, lengths, turns, x, out, low, high):
    """Take a token of sequences low to high through all layers."""
    sizes = _read_sizes(sizes)
    heads, kv, d = sizes.heads, sizes.key_heads, sizes.head_width
    rows, tall = high - low, blocks(high - low)
    table = np.arange(2 * rows * (kv + heads))  # heads lie in order: of k, v, q and out
    for i in range(rows * kv):
        table[rows * kv + i] = i
    for i in range(rows * heads):
        table[2 * rows * kv + i] = i
        table[2 * rows * kv + rows * heads + i] = i
    wide = 3 * pad(sizes.dim, WIDE) + 2 * pad(sizes.inside, WIDE) + pad(sizes.joint, WIDE) + pad(sizes.columns, WIDE)
    wide += (heads + 2 * kv) * d + sizes.mixed
    widened = _block_size(sizes, rows)
    scratch = max(blocks(heads // kv) * (d + pad(d, KEYS) + capacity + 1), sizes.scratch)
    memory = aligned(tall * wide + 2 * LINE + widened + scratch, weights)
    arguments = (sizes, eps, weights, maps, kinds, capacity, memories, places, lengths, turns, x, out)
    _run(*(arguments + (table, memory, low, high)))  # noqa: RUF005


@inner
def _block_size(sizes, rows):
    """Return how many weights are widened at a time."""
    return DEPTH * WIDE if sizes.kind != 0 and rows > 1 else 0


@phase
def _tiles(sizes, tall, memory):
    """Return windows for so many rows."""
    width, across = pad(sizes.dim, WIDE), pad(sizes.joint, WIDE)
    up, last = pad(sizes.inside, WIDE), pad(sizes.columns, WIDE)
    of_x, of_qkv, of_up, of_out = tall * width, tall * across, tall * up, tall * sizes.mixed
    of_q, of_k = tall * sizes.heads * sizes.head_width, tall * sizes.key_heads * sizes.head_width
    block = _block_size(sizes, tall)
    x = LINE + block
    qkv = x + 3 * of_x
    wide = qkv + of_qkv
    logits = wide + 2 * of_up
    q = logits + tall * last
    k = q + of_q + of_out
    spare = pad(k + 2 * of_k, LINE)
    return Tiles(
        window(memory, 0, LINE), window(memory, LINE, block),
        window(memory, x, of_x), window(memory, x + of_x, of_x), window(memory, x + 2 * of_x, of_x),
        window(memory, qkv, of_qkv), window(memory, wide, of_up), window(memory, wide + of_up, of_up),
        window(memory, logits, tall * last), window(memory, q, of_q), window(memory, q + of_q, of_out),
        window(memory, k, of_k), window(memory, k + of_k, of_k), window(memory, spare, memory.size - spare),
        width, across, up, last,
    )  # fmt: skip


@phase
def _attend(tiles, sizes, maps, layer, capacity, memories, places, lengths, table, low, rows):
    """Take the tokens into what is remembered of theirs, and let them read it."""
    kv, d, place = sizes.key_heads, sizes.head_width, window(places, PLACE_COLUMNS * layer, PLACE_COLUMNS)
    q, k, v, out = tiles.q, tiles.k, tiles.v, tiles.attended
    begin, count, features, peaks = low * kv, rows * kv, place[FEATURES], place[PEAKS]
    if place[OWN_MAPS] > 0:
        some, group = window(lengths, low, rows), sizes.heads // kv
        attend_by_heads(q, k, v, out, kv, group, d, maps, place, memories, some, low, rows, tiles.spare)
    elif features > 0:
        sums = (
            window(memories, place[S] + begin * features * d, count * features * d),
            window(memories, place[Z] + begin * features, count * features),
            window(memories, place[PEAK] + begin * peaks, count * peaks),
        )
        tokens = (q, k, v, window(memories, 0, 0))
        no_mask = np.zeros(0, np.bool_)
        of_q, of_k = map_of(maps, place[FIRST_MAP], 0), map_of(maps, place[FIRST_MAP], 1)
        advance_heads(of_q, of_k, tokens, no_mask, table, sums, out, sums, 0, count)
    else:
        size = capacity * d
        cache_k = window(memories, place[CACHE_K] + begin * size, count * size)
        cache_v = window(memories, place[CACHE_V] + begin * size, count * size)
        lengths = window(lengths, low, rows)
        _attend_exactly(q, k, v, rows, sizes, cache_k, cache_v, capacity, lengths, out, tiles.parts, tiles.spare)


@phase
def _mix(tiles, sizes, eps, weights, at, m, place, source, memories, low, rows):
    """Take the tokens into the states of a layer of gated linear attention, and read them; return what is next."""
    columns, gates, w = m.columns, m.gates, weights.floats
    channels, values, keys = 2 * m.groups * m.d + m.heads * m.e, m.heads * m.e, m.groups * m.d
    joint, row, spare = tiles.qkv, tiles.across, tiles.spare
    at = multiply(weights, at, source, tiles.width, rows, sizes.dim, columns + gates, joint, row)
    if m.span > 0:
        past = (m.span - 1) * channels
        before = window(memories, place[PAST] + low * past, rows * past)
        at = convolve(w, at, m, joint, row, rows, before, spare)
    begin = channels + (m.heads if m.erases > 0 else 0)
    logits, logit_row = window(joint, begin, joint.size - begin), row
    if m.decay_rank > 0:
        at = multiply(weights, at, logits, row, rows, m.decay_rank, keys, tiles.up, tiles.up_width)
        logits, logit_row = tiles.up, tiles.up_width
    z, z_row = window(joint, columns, joint.size - columns), row
    if m.gate_rank > 0:
        at = multiply(weights, at, z, row, rows, m.gate_rank, values, tiles.gate, tiles.up_width)
        z, z_row = tiles.gate, tiles.up_width
    of_heads = m.heads * m.d * m.e
    state = window(memories, place[STATE] + low * of_heads, rows * of_heads)
    at = recur(w, at, m, joint, row, rows, logits, logit_row, state, tiles.attended, spare)
    return gate_and_normalise(w, at, m, tiles.attended, rows, z, z_row, eps, spare)


@inner
def _run(
    sizes, eps, weights, maps, kinds, capacity, memories, places, lengths, turns, x, out, table, memory, low, high
):
    """Do what `_run_sequences` does, in memory that outlives its windows."""
    dim, heads, kv, d, hidden = sizes.dim, sizes.heads, sizes.key_heads, sizes.head_width, sizes.hidden
    columns, centred, first = sizes.columns, sizes.centred > 0, sizes.norm_first > 0
    rows = high - low
    tiles = _tiles(sizes, blocks(rows), memory)
    rows_x, plain, more, qkv, parts = tiles.x, tiles.normal, tiles.more, tiles.qkv, tiles.parts
    width, across, up = tiles.width, tiles.across, pad(hidden, WIDE)
    w, weights = weights, Weights(weights, weights.view(np.uint16), sizes.kind, tiles.block)
    turned = sizes.turned if turns.size > 0 else 0
    turns = window(turns, low * turned, rows * turned)
    for i in range(rows):
        for j in range(dim):
            rows_x[i * width + j] = x[(low + i) * dim + j]
    at = 0  # where the weights that come next begin
    for layer in range(sizes.layers):
        # attention
        source = rows_x
        if first:
            at = normalise(w, at, rows_x, rows, dim, width, centred, eps, plain, parts)
            source = plain
        m, place = mixer_of(kinds[0], layer), window(places, PLACE_COLUMNS * layer, PLACE_COLUMNS)
        if m.heads > 0:
            at, mixed = _mix(tiles, sizes, eps, weights, at, m, place, source, memories, low, rows), m.heads * m.e
        else:
            mixed, gates = heads * d, heads * d if sizes.head_gate > 0 else 0
            at = multiply(weights, at, source, width, rows, dim, (heads + 2 * kv) * d + gates, qkv, across)
            _copy_heads(qkv, across, rows, 0, heads, d, tiles.q)
            _copy_heads(qkv, across, rows, heads * d, kv, d, tiles.k)
            _copy_heads(qkv, across, rows, (heads + kv) * d, kv, d, tiles.v)
            if sizes.head_norm > 0:
                at = normalise_heads(w, at, tiles.q, rows * heads, d, pad(d, WIDE), centred, eps)
                at = normalise_heads(w, at, tiles.k, rows * kv, d, pad(d, WIDE), centred, eps)
            _rotate_heads(tiles.q, rows, heads, d, turned, turns)
            _rotate_heads(tiles.k, rows, kv, d, turned, turns)
            _attend(tiles, sizes, maps, layer, capacity, memories, places, lengths, table, low, rows)
            if sizes.head_gate > 0:
                _gate_heads(tiles.attended, mixed, rows, qkv, across, (heads + 2 * kv) * d)
        at = multiply(weights, at, tiles.attended, mixed, rows, mixed, dim, more, width)
        add_rows(rows_x, more, rows * width)
        if not first:
            at = normalise(w, at, rows_x, rows, dim, width, centred, eps, plain, parts)
            for i in range(rows * width):
                rows_x[i] = plain[i]
        experts = experts_of(kinds[1], layer)
        if hidden == 0 and experts.count == 0:
            continue
        if first:
            at = normalise(w, at, rows_x, rows, dim, width, centred, eps, plain, parts)
        # the feed-forward part
        if experts.count > 0:
            at = mix_experts(tiles, weights, at, experts, rows, dim)
        else:
            if sizes.activation == SWIGLU:
                at = multiply(weights, at, plain, width, rows, dim, hidden, tiles.gate, up)
            at = multiply(weights, at, plain, width, rows, dim, hidden, tiles.up, up)
            activate(sizes.activation, tiles.up, tiles.gate, rows * up)
            at = multiply(weights, at, tiles.up, up, rows, hidden, dim, more, width)
        add_rows(rows_x, more, rows * width)
        if not first:
            at = normalise(w, at, rows_x, rows, dim, width, centred, eps, plain, parts)
            for i in range(rows * width):
                rows_x[i] = plain[i]
    # the output
    result, stride = rows_x, width
    if first:
        at = normalise(w, at, rows_x, rows, dim, width, centred, eps, plain, parts)
        result = plain
    if sizes.projected > 0:
        multiply(weights, at, result, width, rows, dim, columns, tiles.logits, tiles.last)
        result, stride = tiles.logits, tiles.last
    for i in range(rows):
        for j in range(columns):
            out[(low + i) * columns + j] = result[i * stride + j]


@inner
def _slab(arguments, low, high):
    _run_sequences(*(arguments + (low, high)))  # noqa: RUF005


_offer = make_offer(_slab)


@compiled
def decode(sizes, eps, weights, maps, kinds, capacity, memories, places, lengths, turns, x, out, board, slabs):
    """Take a token of every sequence through all layers, and write rows or logits to `out`.

    `sizes` are numbers in the order of `Sizes`. Exact attention has room for `capacity` tokens. `places` (layers,
    PLACE_COLUMNS) say where in `memories` each layer finds its own, and `kinds` which layers are of gated linear
    attention (layers, MIXER_COLUMNS) and which have experts (layers, EXPERT_COLUMNS). `turns` holds cosines and sines
    (B, turned), or nothing.
    """
    arguments = (sizes, eps, weights, maps, kinds, capacity, memories, places, lengths, turns, x, out)
    if slabs < 2 or take_board(board):
        _run_sequences(*(arguments + (0, lengths.size)))  # noqa: RUF005
    else:
        _offer(board, arguments)
        share_slabs(board, slabs, lengths.size)
        close_board(board)
