"""A token through a layer of gated linear attention: the convolution, the recurrence of each head, norm and gate.

The state of a head is read twice and written once: what the key reads of it, then the new state and what the query
reads of that. The joint columns of a row are those of q, k, v, beta, decays and the gate, or their factors of low rank.
"""

import math
from typing import Any, NamedTuple

from kernattn.ops._numba.codegen.compile import inner
from kernattn.ops._numba.codegen.elementary import decayed, exponential
from kernattn.ops._numba.codegen.memory import pad, window
from kernattn.ops._numba.codegen.registers import LINE
from kernattn.ops.gated.loops import inverse_norm
from kernattn.ops.step.sums_loops import read, renew

WIDE = 64
"""Columns of a panel of weights."""

DECAYS = None, "constant", "head", "channel"
CONSTANT, OF_HEAD, OF_CHANNEL = 1, 2, 3
GATES = None, "silu", "sigmoid"
SILU = 1
"""By what numbers the loop knows them."""


class Mixer(NamedTuple):
    """Sizes and choices of a layer of gated linear attention, in the order of its row of the table."""

    heads: Any  # of values; 0 for a layer that attends
    groups: Any  # heads of keys
    d: Any
    e: Any
    span: Any  # tokens of the convolution, 0 for none
    decay: Any  # its place in DECAYS
    decay_rank: Any
    gate: Any  # its place in GATES
    gate_rank: Any
    gate_first: Any
    erases: Any
    state_space: Any  # are values times the step that the rate multiplies, and added to the output: Mamba-2?
    columns: Any  # of the joint matrix, before those of the gate
    gates: Any  # columns of the gate there


MIXER_COLUMNS = len(Mixer._fields)


@inner
def mixer_of(table, layer):
    """Return the row of a layer by its names."""
    x = window(table, MIXER_COLUMNS * layer, MIXER_COLUMNS)
    return Mixer(x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], x[10], x[11], x[12], x[13])


@inner
def convolve(w, at, m, joint, row, rows, past, scratch):
    """Convolve the columns of q, k and v with those of the tokens before, which the new ones join; return what is next.

    `past` is (rows, span - 1, channels).
    """
    channels, span = 2 * m.groups * m.d + m.heads * m.e, m.span
    one, wide = w.dtype.type(1), pad(channels, WIDE)
    for i in range(rows):
        for p in range(0, channels, WIDE):
            size = min(WIDE, channels - p)
            panel = at + p * span
            x, y = window(joint, i * row + p, size), window(scratch, 0, size)
            last, bias = window(w, panel + (span - 1) * WIDE, size), window(w, at + wide * span + p, size)
            for c in range(size):
                y[c] = bias[c] + last[c] * x[c]
            begin = i * (span - 1) * channels + p
            for j in range(span - 1):
                before, factor = window(past, begin + j * channels, size), window(w, panel + j * WIDE, size)
                for c in range(size):
                    y[c] += factor[c] * before[c]
            for j in range(span - 2):
                older, newer = window(past, begin + j * channels, size), window(past, begin + (j + 1) * channels, size)
                for c in range(size):
                    older[c] = newer[c]
            if span > 1:
                newest = window(past, begin + (span - 2) * channels, size)
                for c in range(size):
                    newest[c] = x[c]
            for c in range(size):
                x[c] = y[c] / (one + exponential(-y[c]))
    return at + wide * (span + 1)


@inner
def _softplus(x, zero):
    """Return log(1 + e^x)."""
    return (x if x > zero else zero) + math.log1p(exponential(-abs(x)))


@inner
def _unit(x, by, y):
    """Write x times `by` over its norm."""
    factor = x.dtype.type(by) * inverse_norm(x)
    for a in range(x.size):
        y[a] = x[a] * factor


@inner
def recur(w, at, m, joint, row, rows, logits, logit_row, state, out, scratch):
    """Take the tokens into the states of their heads, (rows, heads, d, e), and write what queries read of them.

    At `at` are the rates of decays, then what of v is added to the output; decays of channels come from `logits`.
    """
    d, e, keys, values = m.d, m.e, m.groups * m.d, m.heads * m.e
    unit, zero, one = pad(max(d, e), LINE), w.dtype.type(0), w.dtype.type(1)
    decay, key, query = window(scratch, 0, d), window(scratch, unit, d), window(scratch, 2 * unit, d)
    reader, value, total = window(scratch, 3 * unit, d), window(scratch, 4 * unit, e), window(scratch, 5 * unit, e)
    scale = one if m.state_space > 0 else w.dtype.type(1 / math.sqrt(d))
    rates = m.groups * d if m.decay == OF_CHANNEL else m.heads
    skip = at + pad(rates, WIDE)
    for i in range(rows):
        begin = i * row
        for h in range(m.heads):
            g = h // (m.heads // m.groups)
            q, k = window(joint, begin + g * d, d), window(joint, begin + keys + g * d, d)
            v, o = window(joint, begin + 2 * keys + h * e, e), window(out, i * values + h * e, e)
            sums, by = window(state, (i * m.heads + h) * d * e, d * e), one
            if m.erases > 0:
                _unit(q, scale, query)
                _unit(k, one, key)
                by = one / (one + exponential(-joint[begin + 2 * keys + values + h]))
            else:
                for a in range(d):
                    query[a] = q[a] * scale
                    key[a] = k[a]
            if m.decay == OF_CHANNEL:
                x, rate = window(logits, i * logit_row + g * d, d), window(w, at + g * d, d)
                for a in range(d):
                    decay[a] = decayed(-rate[a] * _softplus(x[a], zero))
            else:
                shrink = one
                if m.decay == CONSTANT:
                    shrink = decayed(-w[at + h])
                elif m.decay == OF_HEAD:
                    step = _softplus(logits[i * logit_row + h], zero)
                    shrink = decayed(-w[at + h] * step)
                    by = step if m.state_space > 0 else by
                for a in range(d):
                    decay[a] = shrink
            for c in range(e):
                total[c] = zero
            if m.erases > 0:
                for a in range(d):
                    reader[a] = decay[a] * key[a]
                read(sums, reader, total)
            for c in range(e):
                value[c] = by * (v[c] - total[c])
                total[c] = zero
            renew(sums, sums, decay, key, query, value, total)
            more = w[skip + h] if m.state_space > 0 else zero
            for c in range(e):
                o[c] = total[c] + more * v[c]
    return at if m.decay == 0 else at + 2 * pad(rates, WIDE)


@inner
def gate_and_normalise(w, at, m, out, rows, z, z_row, eps, scratch):
    """Divide heads, or groups of heads, by their root mean square, times a scale and a gate; return what is next."""
    values, one = m.heads * m.e, w.dtype.type(1)
    size = values // m.groups if m.gate_first > 0 else m.e
    factor = window(scratch, 0, size)
    for i in range(rows):
        for begin in range(0, values, size):
            x, scale = window(out, i * values + begin, size), window(w, at + begin, size)
            if m.gate == 0:
                for c in range(size):
                    factor[c] = one
            else:
                gate = window(z, i * z_row + begin, size)
                for c in range(size):
                    factor[c] = one / (one + exponential(-gate[c]))
                if m.gate == SILU:
                    for c in range(size):
                        factor[c] *= gate[c]
            if m.gate_first > 0:
                for c in range(size):
                    x[c] *= factor[c]
                    factor[c] = one
            square = w.dtype.type(0)
            for c in range(size):
                square += x[c] * x[c]
            by = one / math.sqrt(square / w.dtype.type(size) + eps)
            for c in range(size):
                x[c] *= by * scale[c] * factor[c]
    return at + 2 * pad(values, WIDE)
