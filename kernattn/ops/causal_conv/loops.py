"""A short causal convolution, a token at a time: a few hundred channels, which stay in cache, pass all taps."""

from kernattn.ops._numba.codegen.compile import compiled, inner
from kernattn.ops._numba.codegen.elementary import exponential
from kernattn.ops._numba.codegen.memory import whole, window

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
    """Write tokens low to high. sizes: n, channels, taps; weight (taps, channels)."""
    n, channels, taps = sizes
    x, weight, bias, out = whole(x), whole(weight), whole(bias), whole(out)
    for row in range(low, high):
        back = 0
        while back < min(taps - 1, row % n) and not (fresh.size > 0 and fresh[row - back]):
            back += 1
        for first in range(0, channels, CHANNELS):
            size = min(CHANNELS, channels - first)
            y = window(out, row * channels + first, size)
            for c in range(size):
                y[c] = 0
            if bias.size > 0:
                added = window(bias, first, size)
                for c in range(size):
                    y[c] = added[c]
            for j in range(taps - 1 - back, taps):
                tokens = window(x, (row - taps + 1 + j) * channels + first, size)
                factors = window(weight, j * channels + first, size)
                for c in range(size):
                    y[c] += factors[c] * tokens[c]
            if silu:
                activate(y)
