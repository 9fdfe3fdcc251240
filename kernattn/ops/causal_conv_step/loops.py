"""One token of a short causal convolution: each channel's last tokens are summed, and move on."""

from kernattn.ops._numba.codegen.compile import compiled
from kernattn.ops._numba.codegen.halves import narrow
from kernattn.ops._numba.codegen.memory import aligned, whole, window
from kernattn.ops._numba.tiles.rows import as_read, room_of, wide_rows
from kernattn.ops.causal_conv.loops import activate


@compiled
def advance_taps(sizes, state, x, weight, bias, silu, out):
    """Take every channel of every sequence on by one token. sizes: channels, tokens of a state, taps.

    Rows of x and of out are (floats, bits, kind), of one kind.
    """
    channels, length, taps = sizes
    weight, (floats, bits, kind) = whole(weight), as_read(out)
    count = x[0].size + x[1].size
    room = aligned(2 * room_of(count, x), weight)
    x, _ = wide_rows(as_read(x), 0, count, window(room, room.size // 2, room.size // 2))
    out = floats if kind == 0 else window(room, 0, count)
    for first in range(0, count, channels):
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
        activate(window(out, 0, count))
    if kind != 0:
        narrow(out, 0, count, bits, kind, 0)
    room[:0] = 0  # a use behind the loop: windows of this own nothing, and Numba frees what is not used
