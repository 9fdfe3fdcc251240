"""A chunk on its way back where all channels of a head have one decay.

Cotangents of keys and of queries are summed as columns, (d, tokens): a product with a state gives them so, decays of
tokens are vectors there, and what a log is told is a sum down a column. They are turned once.
"""

from kernattn.ops._numba.codegen.compile import inner, phase
from kernattn.ops._numba.codegen.memory import copy, whole, window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import bits_of, every, load, multiply_add, store, sum_of, where
from kernattn.ops._numba.tiles.products import FULL, LATER, UPPER, fading_product, product, transpose


@phase
def begin_heads(rows, d, e, state, room, back):
    """Begin the cotangents of what tokens write and of keys by what is left at the end of the chunk, and of logs."""
    size, row_d, row_e, last = room.size, room.row_d, room.row_e, rows - 1
    transpose(room.keys, 0, row_d, rows, d, back.turned_keys, 0, size)
    transpose(room.written, 0, row_e, rows, e, back.turned, 0, size)
    product(back.state, 0, row_e, 1, back.turned, 0, size, back.of_keys, 0, size, d, rows, e, False, FULL)
    product(room.keys, 0, row_d, 1, back.state, 0, row_e, back.written, 0, row_e, rows, e, d, False, FULL)
    for j in range(size):
        back.left[j] = room.between[j * size + last] if j < rows else back.left.dtype.type(0)
        back.starts[j], back.logs[j] = 0, 0
    for j in range(rows):
        y, left = window(back.written, j * row_e, e), back.left[j]
        for c in range(e):
            y[c] *= left
    for at in range(0, size, lanes(back.ends)):
        left = load(back.left, at)
        none = every(left, 0)
        one, other = none, none
        for c in range(0, d - 1, 2):  # two sums: an addition waits for the one before
            x, y = left * load(back.of_keys, c * size + at), left * load(back.of_keys, (c + 1) * size + at)
            store(x, back.of_keys, c * size + at)
            store(y, back.of_keys, (c + 1) * size + at)
            one = multiply_add(load(back.turned_keys, c * size + at), x, one)
            other = multiply_add(load(back.turned_keys, (c + 1) * size + at), y, other)
        if d % 2 == 1:
            x = left * load(back.of_keys, (d - 1) * size + at)
            store(x, back.of_keys, (d - 1) * size + at)
            one = multiply_add(load(back.turned_keys, (d - 1) * size + at), x, one)
        store(one + other, back.ends, at)
    since, lane = room.since[last], lanes(state)
    told, across = state.dtype.type(0), e // lane * lane
    one = every(load(state, 0), 0)
    other = one
    for a in range(d):
        for c in range(0, across, 2 * lane):
            at = a * row_e + c
            one = multiply_add(since * load(back.state, at), load(state, at), one)
            if c + lane < across:
                other = multiply_add(since * load(back.state, at + lane), load(state, at + lane), other)
        for c in range(across, e):
            told += since * back.state[a * row_e + c] * state[a * row_e + c]
    told += sum_of(one + other)
    room.total[0] = told if since != 0 else since


@inner
def _fade(at, size, d, since, turned, of, starts):
    """Decay columns of cotangents from the start, and add what logs are told to starts."""
    factor = load(since, at)
    gone, none = factor == 0, every(factor, 0)
    one, other = load(starts, at), none
    for c in range(0, d - 1, 2):
        x, y = factor * load(of, c * size + at), factor * load(of, (c + 1) * size + at)
        x, y = where(gone, none, x), where(gone, none, y)  # what is left of anything
        store(x, of, c * size + at)
        store(y, of, (c + 1) * size + at)
        one = multiply_add(load(turned, c * size + at), x, one)
        other = multiply_add(load(turned, (c + 1) * size + at), y, other)
    if d % 2 == 1:
        x = where(gone, none, factor * load(of, (d - 1) * size + at))
        store(x, of, (d - 1) * size + at)
        one = multiply_add(load(turned, (d - 1) * size + at), x, one)
    store(one + other, starts, at)


@phase
def pull_pairs(scores, strict, rows, room, back):
    """Turn cotangents [j, i] of decayed pairs into those of pairs, 0 for i before j, and tell logs what they decay."""
    size, earlier = room.size, back.earlier
    for i in range(size):
        earlier[i] = 0
    for j in range(rows):
        since = -1 << j
        seen = (since << strict) & ((1 << rows) - 1)
        told = every(load(earlier, 0), 0)
        for at in range(0, size, lanes(earlier)):
            sees, none = bits_of(seen, at, earlier), every(told, 0)
            x, before = load(back.pairs, j * size + at), load(earlier, at)
            told = told + where(bits_of(since, at, earlier), before, none)
            store(before + where(sees, x * load(scores, j * size + at), none), earlier, at)
            store(where(sees, x * load(room.between, j * size + at), none), back.pairs, j * size + at)
        back.logs[j] += sum_of(told)


@phase
def _pull_reading(turned, scores, strict, outs_at, rows, d, e, state, room, back):
    """Take back a reading by cotangents back.out: columns of what reads by way of the state, pairs, and what decays."""
    size, row_e = room.size, room.row_e
    transpose(back.out, 0, row_e, rows, e, back.turned, 0, size)
    product(room.written, 0, row_e, 1, back.turned, 0, size, back.pairs, 0, size, rows, rows, e, False, UPPER)
    product(state, 0, row_e, 1, back.turned, 0, size, back.of_rows, 0, size, d, rows, e, False, FULL)
    for at in range(0, size, lanes(back.of_rows)):
        _fade(at, size, d, room.since, turned, back.of_rows, back.starts)
    for i in range(rows):
        x, y, since = window(back.out, i * row_e, e), window(back.outs, outs_at + i * row_e, e), room.since[i]
        for c in range(e):
            y[c] = since * x[c]
    pull_pairs(scores, strict, rows, room, back)
    transpose(back.pairs, 0, size, rows, rows, back.turned_pairs, 0, size)


@phase
def pull_queries(queries, rows, d, e, state, room, back):
    """Take back what queries read: their cotangents into back.rows, and add those of all else but the state."""
    size, row_d, row_e = room.size, room.row_d, room.row_e
    product(room.scores, 0, size, 1, back.out, 0, row_e, back.written, 0, row_e, rows, e, rows, True, LATER)
    transpose(queries, 0, row_d, rows, d, room.turned, 0, size)
    _pull_reading(room.turned, room.scores, 0, size * row_e, rows, d, e, state, room, back)
    product(room.keys, 0, 1, row_d, back.pairs, 0, size, back.of_rows, 0, size, d, rows, rows, True, FULL)
    transpose(back.of_rows, 0, size, d, rows, back.rows, 0, row_d)
    product(queries, 0, 1, row_d, back.turned_pairs, 0, size, back.of_keys, 0, size, d, rows, rows, True, FULL)


@phase
def pull_keys(rows, d, e, state, room, back):
    """Take back what keys read: they are both sides of a pair."""
    size, row_d, row_e = room.size, room.row_d, room.row_e
    _pull_reading(back.turned_keys, room.reads, 1, 0, rows, d, e, state, room, back)
    for at in range(0, d * size, lanes(back.of_keys)):
        store(load(back.of_keys, at) + load(back.of_rows, at), back.of_keys, at)
    for j in range(rows):
        for at in range(j * size, (j + 1) * size, lanes(back.pairs)):
            store(load(back.pairs, at) + load(back.turned_pairs, at), back.pairs, at)
    product(room.keys, 0, 1, row_d, back.pairs, 0, size, back.of_keys, 0, size, d, rows, rows, True, FULL)
    for i in range(size):
        x, y = window(back.readers, i * row_d, d), window(back.outs, i * row_e, e)
        if i < rows:
            copy(room.keys, i * row_d, d, back.readers, i * row_d)
        else:
            x[:] = 0
            y[:] = 0


@inner
def pull_start(first, count, begun, rows, d, e, room, back):
    """Add to the cotangent of the state at the start, which it begins: what readers first to first + count read."""
    old, factor = whole(back.state), room.since[rows - 1]
    if begun:
        old, factor = whole(back.before), room.since.dtype.type(1)
    fading_product(
        back.readers, first * room.row_d, 1, room.row_d, back.outs, first * room.row_e, room.row_e, old, 0, factor,
        back.before, 0, room.row_e, d, e, count,
    )  # fmt: skip


@phase
def end_heads(rows, d, room, back):
    """Turn the cotangents of keys into rows, and sum what each log is told."""
    transpose(back.of_keys, 0, room.size, d, rows, back.keys, 0, room.row_d)
    tell_logs(room.total[0], rows, back)


@inner
def tell_logs(told, rows, back):
    """Add what each log is told by the decays that it is part of: of the state, `told`, to the end, from the start."""
    for s in range(rows):
        back.logs[s] += told
        told += back.ends[s]
    told = back.logs.dtype.type(0)
    for step in range(rows):
        s = rows - 1 - step
        told += back.starts[s]
        back.logs[s] += told
