"""Tokens of elu + 1 whose numbers are moderate, against sums in the unit 1: nothing is held, lifted or shrunk.

One function without calls: with a head's arrays in a call's arguments, these would take longer than the features.
"""

import numpy as np

from kernattn.ops._numba.codegen.compile import inner
from kernattn.ops._numba.codegen.memory import whole, window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.codegen.vectors import all_of, every, load, store
from kernattn.ops._numba.far.clamped import ends
from kernattn.ops._numba.far.negligible import low_normaliser
from kernattn.ops._numba.kinds import ELU1, moderate_elu1
from kernattn.ops._numba.tiles.outputs import write
from kernattn.ops._numba.tiles.stream import fetch
from kernattn.ops.step.sums_loops import add, read

AHEAD = 512  # numbers of the sums of a head that are fetched while its features are made


@inner
def moderates(phi, like):
    """Are features of a map elu + 1 of its inputs, in whole vectors?"""
    return phi.kind == ELU1 and phi.moderate > 0 and phi.omega_t.size == 0 and phi.features % lanes(like) == 0


@inner
def moderate_heads(phi_k, tokens, table, before, out, after, memory, low, high):
    """Take a token for heads from `low` on, up to `high` or the first that is not moderate, and return that one.

    Arguments are those of `advance`, with whole vectors of values too; `memory` holds a row for each reader, and three.
    """
    s, z, peak = whole(before[0]), whole(before[1]), whole(before[2])
    new_s, new_z, new_peak = after
    q, k, v = tokens[0], tokens[1], tokens[2]
    features, width = phi_k.features, lanes(v)
    heads, e = z.size // features, s.size // z.size
    groups = table.size // (2 * heads) - 1
    of_k, of_v = window(table, 0, heads), window(table, heads, heads)
    of_q, of_out = window(table, 2 * heads, groups * heads), window(table, (2 + groups) * heads, groups * heads)
    row = features + width  # the normaliser behind the features
    key, total_z, total = window(memory, 0, row), window(memory, row, row), window(memory, 2 * row, e)
    readers = 2 * row + e
    zero, largest = v.dtype.type(0), v.dtype.type(np.finfo(v.dtype).max)
    few = every(load(v, 0), phi_k.moderate * phi_k.moderate)
    usual = every(few, v.dtype.type(ends(v).large))
    least, factor = low_normaliser(v), phi_k.amplitude
    for b in range(low, high):
        if peak[b] != zero:
            return b
        fetch(s, b * features * e, min(features * e, AHEAD))
        at_k, at_v = of_k[b] * features, of_v[b] * e
        inside = every(few, zero) < few
        for a in range(0, features, width):
            x = load(k, at_k + a)
            inside = inside & (x * x < few)
            x = moderate_elu1(x, zero) * factor
            store(x, key, a)
            store(load(z, b * features + a) + x, total_z, a)
        for c in range(0, e, width):
            x = load(v, at_v + c)
            inside = inside & (x < usual) & (zero - x < usual)
        for g in range(groups):
            at_q, reader = of_q[b * groups + g] * features, readers + g * row
            sum_ = every(few, zero)
            for a in range(0, features, width):
                x = load(q, at_q + a)
                inside = inside & (x * x < few)
                x = moderate_elu1(x, zero)
                store(x, memory, reader + a)
                sum_ = sum_ + x * load(total_z, a)
            store(sum_, memory, reader + features)
            parts, normaliser = window(memory, reader + features, width), zero
            for i in range(width):
                normaliser += parts[i]
            parts[0] = normaliser
            if not normaliser >= least:
                return b
        if not all_of(inside):
            return b
        new_peak[b] = zero
        for a in range(0, features, width):
            store(load(total_z, a), new_z, b * features + a)
        for g in range(groups):
            reader, at_out = readers + g * row, of_out[b * groups + g] * e
            for c in range(0, e, width):
                store(every(few, zero), total, c)
            sums = window(new_s, b * features * e, features * e)
            if g > 0:
                read(sums, window(memory, reader, features), total)
            else:
                old = window(s, b * features * e, features * e)
                add(old, sums, key, window(memory, reader, features), window(v, at_v, e), total)
            behind = window(memory, reader + features, 1)
            normaliser, finite = behind[0], every(few, zero) < few
            for c in range(0, e, width):
                x = load(total, c) / normaliser
                finite = finite & (x < largest) & (zero - x < largest)
                store(x, out, at_out + c)
            if not all_of(finite):
                write(total, e, 1, e, behind, out, at_out)
    return high
