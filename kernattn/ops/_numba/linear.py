"""The recurrence of linear attention, chunk by chunk: for causal attention, and for summaries of keys."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import math

import numpy as np

from kernattn.ops._numba.compile import compiled, inner, inner_exact
from kernattn.ops._numba.elementary import log_of
from kernattn.ops._numba.kinds import row_logs
from kernattn.ops._numba.plans import unpacked
from kernattn.ops._numba.products import FULL, LINE, LOWER, ROWS, TALL, UPPER, lanes, pad, panel_product, product
from kernattn.ops._numba.tiles import (
    add_columns,
    finite_rows,
    key_values,
    key_weights,
    load_rows,
    load_sums,
    query_projections,
    query_values,
    query_weights,
    rescale,
    row_scales,
    unit_of_rows,
    units_of_features,
)
from kernattn.ops._numba.windows import whole, window

__all__ = ["aligned", "answer", "project_keys", "recur", "tile_rows", "write"]


@inner
def aligned(size, like):
    """Return a flat array of zeros that begins at a cache line."""
    unit = LINE // like.itemsize
    memory = np.zeros(size + unit, like.dtype)
    skip = (LINE - memory.ctypes.data % LINE) % LINE // like.itemsize
    return memory[skip : skip + size]


@inner
def tile_rows(count, like):
    """Return how many rows or columns a tile of `count` needs, for whole vectors and whole blocks."""
    return pad(pad(count, lanes(like)), ROWS)


@inner
def project_keys(phi, k, at, rows, mask, mask_at, given, given_at, packed, tile, row, scales):
    """Write the projections of rows of k, token-major (C, D), and the log scale of each row."""
    dim = phi.dim
    if phi.omega_t.size == 0:
        load_rows(k, at, rows, dim, mask, mask_at, tile, row)
        row_scales(phi.weights, tile, rows, dim, row, given, given_at, mask, mask_at, scales)
    else:
        load_rows(k, at, rows, dim, mask, mask_at, packed, dim)
        row_scales(phi.weights, packed, rows, dim, dim, given, given_at, mask, mask_at, scales)
        panel_product(packed, rows, dim, phi.omega_t, 0, phi.frequencies, tile, row)


@inner
def _queries(phi, q, at, rows, units, z, packed, tile, row, highest, den):
    """Write the weights of queries, features-major (M, C), their units where they have any, and normalisers over z."""
    query_projections(q, at, rows, phi.dim, phi.omega, phi.frequencies, tile, row, packed, row)
    if phi.per_feature:
        query_weights(phi, tile, row, rows, units, z, highest, den)
    else:
        query_values(phi, tile, row, rows, z, den)


@inner
def _cut_triangle(products, rows, row, inside, den):
    """Put zeros where j > i, as far as blocks reach, and add the columns to den."""
    for i in range(rows):
        inside[i] = 0
    for j in range(rows):
        first = max(0, j + 1 - TALL) // lanes(products) * lanes(products)
        x, total = window(products, j * row + first, rows - first), window(inside, first, rows - first)
        for i in range(j - first):
            x[i] = 0
        for i in range(rows - first):
            total[i] += x[i]
    for i in range(rows):
        den[i] += inside[i]


@inner_exact
def write(num, row, rows, e, den, out, at):
    """Write num / den, 0 where den is 0."""
    zero = num.dtype.type(0)
    for i in range(rows):
        source, target, d = window(num, i * row, e), window(out, at + i * e, e), den[i]
        for c in range(e):
            target[c] = zero if d == zero else source[c] / d


@inner
def log_normalisers(den, units, rows, logs, signs, at):
    """Write the logarithm of the size of den 2^units, and its sign."""
    zero, one, nothing = den.dtype.type(0), den.dtype.type(1), den.dtype.type(-np.inf)
    for i in range(rows):
        d = den[i]
        logs[at + i] = nothing if d == zero else log_of(units[i]) + math.log(abs(d))
        signs[at + i] = one if d > zero else -one if d < zero else d


@compiled
def recur(
    q_numbers, q_constants, k_numbers, k_constants, e,
    q, k, v, given, mask, fresh, before_s, before_z, before_peak,
    units, reads, n, out, logs, signs, after_s, after_z, after_peak, chunk, bound, low, high,
):  # fmt: skip
    """Run units low to high. A unit is a run of one head's tokens.

    units (U, 6): head of k, of v, of the mask, of what came before or -1; first token, and the one after the last.

    reads (units, G, 2) are the heads of q that look at it, and of out. Every array of tokens is flat. Unless `logs` is
    empty, logarithm and sign of every normaliser are written too, without the query's own log scale.
    """
    phi_q, phi_k = unpacked(q_numbers, q_constants), unpacked(k_numbers, k_constants)
    features = phi_k.features
    q, k, v, given = whole(q), whole(k), whole(v), whole(given)
    row_e = tile_rows(e, v)
    # an odd number of lines: rows fall into different cache sets
    row_k = pad(max(features, phi_k.frequencies), lanes(v)) + lanes(v)
    size = tile_rows(chunk, v)
    wide = tile_rows(max(features, phi_q.frequencies, phi_k.frequencies), v)
    groups = reads.shape[1]
    s = aligned(wide * row_e, v)
    z, before, after = aligned(wide, v), aligned(wide, v), aligned(wide, v)  # units of the sums, before and after
    base, inside = aligned(wide, v), aligned(wide, v)
    scales, highest, den, cut = aligned(size, v), aligned(size, v), aligned(size, v), aligned(size, v)
    keys = aligned(size * row_k, v)
    queries = aligned(wide * size, v)
    packed = aligned(size * max(phi_q.dim, phi_k.dim), v)
    values = aligned(size * row_e, v)
    products = aligned(size * size, v)
    num = aligned(size * row_e, v)
    nothing = v.dtype.type(-np.inf)
    per_feature = phi_k.per_feature
    tops = features if per_feature else 1
    for u in range(low, high):
        head, head_v, head_m = units[u, 0], units[u, 1], units[u, 2]
        start, t, end = units[u, 3], units[u, 4], units[u, 5]
        load_sums(before_s, before_z, before_peak, start, features, e, tops, s, row_e, z, before)
        while t < end:
            rows = min(chunk, end - t)
            if fresh.size > 0:
                if fresh[head_m * n + t]:
                    for a in range(tops):
                        before[a] = nothing
                    for a in range(features):
                        z[a] = 0
                    for i in range(features * row_e):
                        s[i] = 0
                for j in range(1, rows):
                    if fresh[head_m * n + t + j]:
                        rows = j
                        break
            rows = finite_rows(v, (head_v * n + t) * e, rows, e, mask, head_m * n + t)
            project_keys(
                phi_k, k, (head * n + t) * phi_k.dim, rows, mask, head_m * n + t, given, head * n + t,
                packed, keys, row_k, scales,
            )  # fmt: skip
            if per_feature:
                row_logs(phi_k, keys, rows, row_k, phi_k.frequencies)
                rows = units_of_features(keys, rows, row_k, features, scales, phi_k.offset, before, bound, base, after)
                key_weights(keys, rows, row_k, features, scales, phi_k.offset, after)
                rescale(s, row_e, e, z, features, before, after)
            else:
                rows, unit = unit_of_rows(scales, rows, before[0], bound)
                key_values(phi_k, keys, rows, row_k, scales, unit)
                if unit != before[0]:
                    after[:features] = unit
                    base[:features] = before[0]
                    rescale(s, row_e, e, z, features, base, after)
                    before[0] = unit
            load_rows(v, (head_v * n + t) * e, rows, e, mask, head_m * n + t, values, row_e)
            for g in range(groups):
                for i in range(rows):
                    den[i] = 0
                _queries(
                    phi_q, q, (reads[u, g, 0] * n + t) * phi_q.dim, rows, after, z, packed, queries, size, highest, den
                )
                # products[j, i] = phi(k_j) . phi(q_i) for j <= i
                product(keys, 0, row_k, 1, queries, 0, size, products, 0, size, rows, rows, features, False, UPPER)
                _cut_triangle(products, rows, size, cut, den)
                product(queries, 0, 1, size, s, 0, row_e, num, 0, row_e, rows, e, features, False, FULL)
                product(products, 0, 1, size, values, 0, row_e, num, 0, row_e, rows, e, rows, True, LOWER)
                write(num, row_e, rows, e, den, out, (reads[u, g, 1] * n + t) * e)
                if logs.size > 0:
                    if not per_feature:
                        highest[:rows] = before[0]
                    log_normalisers(den, highest, rows, logs, signs, reads[u, g, 1] * n + t)
            add_columns(keys, rows, row_k, features, inside, z)
            product(keys, 0, 1, row_k, values, 0, row_e, s, 0, row_e, features, e, rows, True, FULL)
            t += rows
        for a in range(tops):
            after_peak[u * tops + a] = log_of(before[a])
        for a in range(features):
            after_z[u * features + a] = z[a]
            for c in range(e):
                after_s[(u * features + a) * e + c] = s[a * row_e + c]


@compiled
def answer(q_numbers, q_constants, e, q, s_all, z_all, peak_all, reads, n, out, logs, signs, chunk, low, high):
    """Answer blocks low to high of `chunk` queries, numbered read by read.

    reads (R, 3): head of q, of the state, of out. Normalisers are as in `recur`.
    """
    phi, q = unpacked(q_numbers, q_constants), whole(q)
    features, per_feature = phi.features, phi.per_feature
    row_e = tile_rows(e, q)
    size = tile_rows(chunk, q)
    wide = tile_rows(max(features, phi.frequencies), q)
    s, z, units = aligned(wide * row_e, q), aligned(wide, q), aligned(wide, q)
    highest, den = aligned(size, q), aligned(size, q)
    queries = aligned(wide * size, q)
    packed = aligned(size * phi.dim, q)
    num = aligned(size * row_e, q)
    tops = features if per_feature else 1
    blocks = (n + chunk - 1) // chunk
    loaded = -1
    for b in range(low, high):
        r, t = b // blocks, b % blocks * chunk
        head = reads[r, 1]
        if head != loaded:
            loaded = head
            load_sums(s_all, z_all, peak_all, head, features, e, tops, s, row_e, z, units)
        rows = min(chunk, n - t)
        for i in range(rows):
            den[i] = 0
        _queries(phi, q, (reads[r, 0] * n + t) * phi.dim, rows, units, z, packed, queries, size, highest, den)
        product(queries, 0, 1, size, s, 0, row_e, num, 0, row_e, rows, e, features, False, FULL)
        write(num, row_e, rows, e, den, out, (reads[r, 2] * n + t) * e)
        if logs.size > 0:
            if not per_feature:
                highest[:rows] = units[0]
            log_normalisers(den, highest, rows, logs, signs, reads[r, 2] * n + t)
