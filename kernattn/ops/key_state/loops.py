"""The recurrence of linear attention, chunk by chunk: for causal attention, and for summaries of keys."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

import numpy as np

from kernattn.ops._numba.compile import compiled, inner
from kernattn.ops._numba.elementary import log_of, weight
from kernattn.ops._numba.far import absorbed, alike_rows, in_unit, own_values
from kernattn.ops._numba.kinds import positive, row_logs
from kernattn.ops._numba.maps import unpacked
from kernattn.ops._numba.memory import aligned, pad, tile_rows, whole, window
from kernattn.ops._numba.outputs import log_normalisers, write
from kernattn.ops._numba.products import FULL, LOWER, UPPER, product
from kernattn.ops._numba.registers import TALL, lanes
from kernattn.ops._numba.tiles import (
    column_sums,
    key_values,
    key_weights,
    load_rows,
    load_sums,
    project_keys,
    query_features,
    rescale,
    scale_row,
    unit_of_rows,
    units_of_features,
)

__all__ = ["recur"]


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
    base, sums, spare = aligned(wide, v), aligned(wide, v), aligned(2 * wide, v)
    scales, highest, den, cut = aligned(size, v), aligned(size, v), aligned(size, v), aligned(size, v)
    keys = aligned(size * row_k, v)
    queries = aligned(wide * size, v)
    packed = aligned(size * max(phi_q.dim, phi_k.dim), v)
    packed_v = aligned(size * row_e, v)
    products = aligned(size * size, v)
    num = aligned(size * row_e, v)
    nothing = v.dtype.type(-np.inf)
    per_feature = phi_k.per_feature
    tops = features if per_feature else 1
    for u in range(low, high):
        head, head_v, head_m = units[u, 0], units[u, 1], units[u, 2]
        start, t, end = units[u, 3], units[u, 4], units[u, 5]
        load_sums(before_s, before_z, before_peak, start, features, e, tops, s, row_e, z, before)
        lifted = v.dtype.type(0)
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
            rows, lift = alike_rows(v, (head_v * n + t) * e, rows, e, mask, head_m * n + t, lifted)
            if lift > lifted:
                for a in range(features):
                    hidden = absorbed(before[a if per_feature else 0], lift - lifted)
                    if hidden > 0:
                        scale_row(s, a * row_e, e, z, a, weight(v.dtype.type(0), -hidden, v.dtype.type(0)))
                lifted = lift
            project_keys(
                phi_k, k, (head * n + t) * phi_k.dim, rows, mask, head_m * n + t, given, head * n + t,
                packed, keys, row_k, scales,
            )  # fmt: skip
            if per_feature:
                row_logs(phi_k, keys, rows, row_k, phi_k.frequencies)
                rows = units_of_features(
                    keys, rows, row_k, features, scales, phi_k.offset, before, bound - lifted, lifted, base, after
                )
                key_weights(keys, rows, row_k, features, scales, phi_k.offset, after, lifted, sums)
                rescale(s, row_e, e, z, features, before, after)
            else:
                if positive(phi_k):
                    own_values(phi_k, k, (head * n + t) * phi_k.dim, rows, keys, row_k, scales, spare)
                rows, unit = unit_of_rows(scales, rows, before[0], bound - lifted, lifted)
                if positive(phi_k):
                    in_unit(keys, rows, row_k, features, scales, unit, lifted)
                else:
                    key_values(phi_k, keys, rows, row_k, scales, unit, lifted)
                if unit != before[0]:
                    after[:features] = unit
                    base[:features] = before[0]
                    rescale(s, row_e, e, z, features, base, after)
                    before[0] = unit
            values, row_v = window(v, (head_v * n + t) * e, rows * e), e
            if mask.size > 0 or e % lanes(v) > 0:
                values, row_v = window(packed_v, 0, packed_v.size), row_e
                load_rows(v, (head_v * n + t) * e, rows, e, mask, head_m * n + t, packed_v, row_e)
            for g in range(groups):
                for i in range(rows):
                    den[i] = 0
                query_features(
                    phi_q, q, (reads[u, g, 0] * n + t) * phi_q.dim, rows, after, z,
                    packed, queries, size, highest, den, spare,
                )  # fmt: skip
                # products[j, i] = phi(k_j) . phi(q_i) for j <= i
                product(keys, 0, row_k, 1, queries, 0, size, products, 0, size, rows, rows, features, False, UPPER)
                _cut_triangle(products, rows, size, cut, den)
                product(queries, 0, 1, size, s, 0, row_e, num, 0, row_e, rows, e, features, False, FULL)
                product(products, 0, 1, size, values, 0, row_v, num, 0, row_e, rows, e, rows, True, LOWER)
                write(num, row_e, rows, e, den, out, (reads[u, g, 1] * n + t) * e)
                if logs.size > 0:
                    if not per_feature:
                        highest[:rows] += before[0]
                    log_normalisers(den, highest, rows, logs, signs, reads[u, g, 1] * n + t)
            if not per_feature:
                column_sums(keys, rows, row_k, features, sums)
            for a in range(features):
                z[a] += sums[a]
            product(keys, 0, 1, row_k, values, 0, row_v, s, 0, row_e, features, e, rows, True, FULL)
            t += rows
        for a in range(tops):
            after_peak[u * tops + a] = log_of(before[a])
        for a in range(features):
            after_z[u * features + a] = z[a]
            for c in range(e):
                after_s[(u * features + a) * e + c] = s[a * row_e + c]
