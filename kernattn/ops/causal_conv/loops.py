"""A short causal convolution, a token at a time: a few hundred channels, which stay in cache, pass all taps."""

from kernattn.ops._numba.codegen.compile import compiled, inner
from kernattn.ops._numba.codegen.elementary import exponential
from kernattn.ops._numba.codegen.halves import narrow
from kernattn.ops._numba.codegen.memory import aligned, whole, window
from kernattn.ops._numba.tiles.rows import as_read, read_row

CHANNELS = 512
"""Of a block: it, its taps and its inputs lie in the first cache."""


@inner
def activate(y):
    """Apply y / (1 + e^-y) to a row."""
    one = y.dtype.type(1)
    for c in range(y.size):
        y[c] = y[c] / (one + exponential(-y[c]))


@compiled
def convolve(sizes, x, weight, bias, silu, fresh, out, low, high):
    """Write tokens low to high. sizes: n, channels, taps; weight (taps, channels).

    Rows of x and of out are (floats, bits, kind), of one kind. The last tokens of 16 bits are kept as floats: that of
    row t in place t modulo taps.
    """
    n, channels, taps = sizes
    (floats, _, kind), weight, bias, (answers, bits, _) = as_read(x), whole(weight), whole(bias), as_read(out)
    last = aligned(taps * channels if kind != 0 else 0, weight)
    room = aligned(CHANNELS if kind != 0 else 0, weight)
    for row in range(low, high):
        back = 0
        while back < min(taps - 1, row % n) and not (fresh.size > 0 and fresh[row - back]):
            back += 1
        if kind != 0:
            for t in range(row - back if row == low else row, row + 1):
                read_row(x, t * channels, channels, last, t % taps * channels)
        for first in range(0, channels, CHANNELS):
            size = min(CHANNELS, channels - first)
            y = window(room, 0, size)
            if kind == 0:
                y = window(answers, row * channels + first, size)
            for c in range(size):
                y[c] = 0
            if bias.size > 0:
                added = window(bias, first, size)
                for c in range(size):
                    y[c] = added[c]
            for t in range(row - back, row + 1):
                tokens = window(last, t % taps * channels + first, size)
                if kind == 0:
                    tokens = window(floats, t * channels + first, size)
                factors = window(weight, (t - row + taps - 1) * channels + first, size)
                for c in range(size):
                    y[c] += factors[c] * tokens[c]
            if silu:
                activate(y)
            if kind != 0:
                narrow(room, 0, size, bits, kind, row * channels + first)
    last[:0] = 0  # a use behind the loop: windows of these own nothing, and Numba frees what is not used
    room[:0] = 0
