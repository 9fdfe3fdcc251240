"""One token of a short causal convolution: each channel's last tokens are summed, and move on."""

from kernattn.ops._numba.codegen.compile import compiled
from kernattn.ops._numba.codegen.memory import whole, window
from kernattn.ops.causal_conv.loops import activate


@compiled
def advance_taps(sizes, state, x, weight, bias, silu, out):
    """Take every channel of every sequence on by one token. sizes: channels, tokens of a state, taps."""
    channels, length, taps = sizes
    weight = whole(weight)
    for first in range(0, x.size, channels):
        for c in range(channels):
            kept, factors = window(state, (first + c) * length, length), window(weight, c * taps, taps)
            total = bias[c] if bias.size > 0 else weight.dtype.type(0)
            for j in range(taps - 1):
                total += factors[j] * kept[length - taps + 1 + j]
            total += factors[taps - 1] * x[first + c]
            for j in range(length - 1):
                kept[j] = kept[j + 1]
            if length > 0:  # a convolution of one tap remembers nothing
                kept[length - 1] = x[first + c]
            out[first + c] = total
    if silu:
        activate(window(out, 0, out.size))
