"""The way back through rows of exact attention whose scores leave the range of floats, one by one, in float64."""

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner
from kernattn.ops._numba.codegen.memory import window
from kernattn.ops._numba.far.clamped import finite
from kernattn.ops._numba.tiles.rows import as_read, read_row
from kernattn.ops.block_softmax.far_loops import far_dot, far_weights
from kernattn.ops.block_softmax.pair_loops import added_to, are_pairs, is_hidden, row_of_pairs
from kernattn.ops.block_softmax_vjp.rows_loops import OUT, QUERY, STATE, K, V


@inner
def _list_seen(tokens, mask, at, pairs, at_pairs, k, at_k, key, room, seen):
    """Write the tokens that count; return how many, or -1 where a key of them is not finite."""
    keys = 0
    for j in tokens:
        if (mask.size == 0 or mask[at + j]) and not is_hidden(pairs, at_pairs, j, room):
            read_row(k, at_k + j * key.size, key.size, key, 0)
            if not finite(key):
                return -1
            seen[keys] = j
            keys += 1
    return keys


@compiled
def pull_far_rows(
    q, k, v, g, of_lse, mask, bias, pairs, scale, states, reads, far, rows, ends, tokens, dq, dk, dv, db, dpairs, ds,
    sizes, low, high,
):  # fmt: skip
    """Add the cotangents between states low to high and the far ones among some rows; ds has a number for each state.

    Row rows_i sees the tokens from ends_i to ends_(i + 1). states (B, 3) are heads of k, of v, and of mask, bias, dk,
    dv and db; reads (B, G, 2) heads of q and of g. of_lse (heads, n) is the cotangent of the log normalisers,
    or has no numbers. q, k, v and g are (floats, bits, kind), sizes (n, D, l, e).
    """
    n, dim, length, e = sizes
    q, k, v, g = as_read(q), as_read(k), as_read(v), as_read(g)
    x, key, y, value = np.empty(dim, dq.dtype), np.empty(dim, dq.dtype), np.empty(e, dq.dtype), np.empty(e, dq.dtype)
    seen, weights, slopes = np.empty(length, np.int64), np.empty(length), np.empty(length)
    own, room = np.empty(dim), np.empty(1, dq.dtype)
    for b in range(low, high):
        at_m, at_k, at_v = states[b, STATE] * length, states[b, K] * length * dim, states[b, V] * length * e
        for r in range(reads.shape[1]):
            for row in range(rows.size):
                at = reads[b, r, OUT] * n + rows[row]
                if not far[at]:
                    continue
                target = window(dq, at * dim, dim)
                at_pairs = row_of_pairs(pairs, b * reads.shape[1] + r, n, rows[row])
                of_row = tokens[ends[row] : ends[row + 1]]
                keys = _list_seen(of_row, mask, at_m, pairs, at_pairs, k, at_k, key, room, seen)
                added = added_to(seen[: max(keys, 0)], bias, at_m, pairs, at_pairs, room)
                if not finite(added):
                    keys = -1
                if keys < 0:
                    target[:] = np.nan
                if keys <= 0:
                    continue
                # its weights, and the cotangents of these
                dot = 0.0
                read_row(q, (reads[b, r, QUERY] * n + rows[row]) * dim, dim, x, 0)
                read_row(g, at * e, e, y, 0)
                _, total = far_weights(x, k, at_k, seen[:keys], added, scale, weights[:keys])
                for s in range(keys):
                    weights[s] /= total
                    read_row(v, at_v + seen[s] * e, e, value, 0)
                    slopes[s] = far_dot(y, value)
                    dot += weights[s] * slopes[s]
                if of_lse.size > 0:
                    dot -= of_lse[at]
                # the cotangents of each of its keys, and its own
                own[:] = 0
                for s in range(keys):
                    j, slope = seen[s], weights[s] * (slopes[s] - dot)
                    values = window(dv, (at_m + j) * e, e)
                    for c in range(e):
                        values[c] += weights[s] * y[c]
                    if slope != 0:
                        into = window(dk, (at_m + j) * dim, dim)
                        read_row(k, at_k + j * dim, dim, key, 0)
                        if bias.size > 0:
                            db[at_m + j] += slope
                        if are_pairs(pairs):
                            dpairs[at_pairs + j] += slope
                        ds[b] += slope * far_dot(x, key)
                        slope *= scale
                        for c in range(dim):
                            into[c] += slope * x[c]
                            own[c] += slope * key[c]
                for c in range(dim):
                    target[c] = own[c]
