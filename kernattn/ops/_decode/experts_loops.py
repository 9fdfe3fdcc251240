"""A token through a feed-forward part of experts: a gate chooses some for each row, and only those are read."""

from typing import Any, NamedTuple

from kernattn.ops._decode.gated_loops import WIDE
from kernattn.ops._decode.rows_loops import SWIGLU, activate, exponentials
from kernattn.ops._decode.weights_loops import floats_of, multiply
from kernattn.ops._numba.codegen.compile import inner
from kernattn.ops._numba.codegen.elementary import exponential
from kernattn.ops._numba.codegen.memory import pad, window


class Experts(NamedTuple):
    """Sizes and choices of a feed-forward part of experts, in the order of its row of the table."""

    count: Any  # 0 for a layer without experts
    chosen: Any
    hidden: Any
    shared: Any
    normalised: Any


EXPERT_COLUMNS = len(Experts._fields)


@inner
def experts_of(table, layer):
    """Return the row of a layer by its names."""
    x = window(table, EXPERT_COLUMNS * layer, EXPERT_COLUMNS)
    return Experts(x[0], x[1], x[2], x[3], x[4])


@inner
def _add_expert(weights, at, x, dim, hidden, tiles, by, total):
    """Add what an expert makes of a row, times a number; return what is next."""
    up, gate, y = tiles.up, tiles.gate, tiles.spare
    at = multiply(weights, at, x, 0, 1, dim, hidden, gate, 0)
    at = multiply(weights, at, x, 0, 1, dim, hidden, up, 0)
    activate(SWIGLU, up, gate, pad(hidden, WIDE))
    at = multiply(weights, at, up, 0, 1, hidden, dim, y, 0)
    for j in range(dim):
        total[j] += by * y[j]
    return at


@inner
def mix_experts(tiles, weights, at, experts, rows, dim):
    """Write the sums over the experts that each row chooses; only those are read, row by row. Return what is next."""
    width, across, one = tiles.width, tiles.across, tiles.x.dtype.type(1)
    at = multiply(weights, at, tiles.normal, width, rows, dim, experts.count, tiles.qkv, across)
    each = 2 * floats_of(dim, experts.hidden, weights.kind) + floats_of(experts.hidden, dim, weights.kind)
    shared, after = at + experts.count * each, at
    for i in range(rows):
        x, total = window(tiles.normal, i * width, width), window(tiles.more, i * width, width)
        p = window(tiles.qkv, i * across, experts.count)
        exponents = exponentials(window(tiles.qkv, i * across, across), experts.count, tiles.parts)
        taken = one - one
        for j in range(width):
            total[j] = one - one
        for _ in range(experts.chosen):
            best = 0
            for expert in range(1, experts.count):
                best = expert if p[expert] > p[best] else best
            _add_expert(weights, at + best * each, x, dim, experts.hidden, tiles, p[best], total)
            taken += p[best]
            p[best] = -one
        by = one / (taken if experts.normalised > 0 else exponents)
        for j in range(dim):
            total[j] *= by
        after = shared
        if experts.shared > 0:
            after = multiply(weights, after, x, 0, 1, dim, 1, tiles.logits, 0)
            by = one / (one + exponential(-tiles.logits[0]))
            after = _add_expert(weights, after, x, dim, experts.shared, tiles, by, total)
    return after
