"""The window's part of a token: it moves on by one, its keys get exact weights, and the features' part joins them."""

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled, inner
from kernattn.ops._numba.codegen.elementary import exponential
from kernattn.ops._numba.codegen.memory import aligned, copy, window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import every, load, store


@inner
def _dot(x, y, at, d, parts):
    """Return the inner product of x and y[at : at + d]."""
    width, total = lanes(x), x.dtype.type(0)
    whole = d // width * width
    if whole > 0:
        sum_ = every(load(x, 0), total)
        for i in range(0, whole, width):
            sum_ = sum_ + load(x, i) * load(y, at + i)
        store(sum_, parts, 0)
        for i in range(width):
            total += parts[i]
    for i in range(whole, d):
        total += x[i] * y[at + i]
    return total


@inner
def _add(factor, y, at, e, total):
    """Add factor y[at : at + e] to total."""
    width = lanes(total)
    whole = e // width * width
    for i in range(0, whole, width):
        store(load(total, i) + load(y, at + i) * factor, total, i)
    for i in range(whole, e):
        total[i] += factor * y[at + i]


@inner
def _move(before, new, at_new, b, w, c, after):
    """Write rows (w, c) of head b without the first, and a new one behind them."""
    copy(before, (b * w + 1) * c, (w - 1) * c, after, b * w * c)
    copy(new, at_new, c, after, (b * w + w - 1) * c)


@compiled
def join_window(sizes, scale, tokens, before, mask, bias, table, far, peaks, z, after, out):
    """Move the windows of all heads of the state on by a token, and join both parts; return whether all is ordinary.

    sizes: tokens w, d and e of a window, heads of the state, readers of each. tokens are q, k and v; before and after
    keys, values and which are present. The table numbers the heads of k, v, q and of out, as `Heads` does. far, peaks
    and z are the outputs and normalisers of the features, as out is numbered. Where a score or an output is no number,
    or too large, the caller asks whoever takes every row.
    """
    w, d, e, heads, groups = sizes
    (q, k, v), (old_k, old_v, there), (new_k, new_v, seen) = tokens, before, after
    zero, nothing = q.dtype.type(0), q.dtype.type(-np.inf)
    wide = d + e + lanes(q)
    memory = aligned(2 * wide + w, q)
    parts, query = window(memory, 0, lanes(q)), window(memory, lanes(q), d)
    near, scores = window(memory, lanes(q) + wide, e), window(memory, 2 * wide, w)
    ordinary, limit = True, q.dtype.type(np.finfo(q.dtype).max / 4)
    for b in range(heads):
        here = mask.size == 0 or mask[b]
        if here:
            _move(old_k, k, table[b] * d, b, w, d, new_k)
            _move(old_v, v, table[heads + b] * e, b, w, e, new_v)
            for j in range(w - 1):
                seen[b * w + j] = there[b * w + j + 1]
            seen[b * w + w - 1] = True
        else:
            copy(old_k, b * w * d, w * d, new_k, b * w * d)
            copy(old_v, b * w * e, w * e, new_v, b * w * e)
            for j in range(w):
                seen[b * w + j] = there[b * w + j]
        for g in range(groups):
            of_q, of_out = table[2 * heads + b * groups + g], table[(2 + groups) * heads + b * groups + g]
            target = window(out, of_out * e, e)
            if not here:
                for c in range(e):
                    target[c] = zero
                continue
            for i in range(d):
                query[i] = q[of_q * d + i] * scale
            top = nothing
            for j in range(w):
                scores[j] = nothing
                if seen[b * w + j]:
                    x = _dot(query, new_k, (b * w + j) * d, d, parts)
                    ordinary = ordinary and abs(x) < limit
                    scores[j] = x
                    top = x if x > top else top
            total, by = zero, zero if bias.size == 0 else bias[of_out]
            for c in range(e):
                near[c] = zero
            for j in range(w):
                if seen[b * w + j]:
                    weight = exponential(scores[j] - top)
                    total += weight
                    _add(weight, new_v, (b * w + j) * e, e, near)
            # both under one normaliser, in units of the larger
            own, rest = top + by, zero
            highest = peaks[of_out] if z[of_out] != zero and peaks[of_out] > own else own
            own = exponential(own - highest)
            if z[of_out] != zero:
                rest = z[of_out] * exponential(peaks[of_out] - highest)
            den = own * total + rest
            for c in range(e):
                y = zero if den == zero else (own * near[c] + rest * far[of_out * e + c]) / den
                ordinary = ordinary and abs(y) < limit
                target[c] = y
    memory[:0] = 0  # a use behind the loop: windows of this own nothing, and Numba frees what is not used
    return ordinary
