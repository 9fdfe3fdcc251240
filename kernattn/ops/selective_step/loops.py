"""One token of Mamba-2's state space: each row of a state decays, is added to, and is read, in one pass."""

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled
from kernattn.ops._numba.codegen.memory import whole, window


@compiled
def advance_states(sizes, state, x, dt, a, b, c, d, out, low, high):
    """Take states low to high on by one token. sizes: heads, rows and columns of a state, groups."""
    heads, rows, columns, groups = sizes
    x, b, c = whole(x), whole(b), whole(c)
    for head in range(low, high):
        group = head // heads * groups + head % heads // (heads // groups)
        added, read = window(b, group * columns, columns), window(c, group * columns, columns)
        decay = np.exp(dt[head] * a[head % heads])
        skip = d[head % heads] if d.size > 0 else x.dtype.type(0)
        for i in range(head * rows, (head + 1) * rows):
            y, factor, total = window(state, i * columns, columns), dt[head] * x[i], x.dtype.type(0)
            for j in range(columns):
                y[j] = decay * y[j] + factor * added[j]
                total += y[j] * read[j]
            out[i] = total + skip * x[i]
