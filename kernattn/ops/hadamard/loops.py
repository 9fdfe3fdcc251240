"""Chains of Walsh-Hadamard transforms, a vector of rows at a time: every sum and difference is one of whole vectors."""

import numpy as np
from numba import types

from kernattn.ops._numba.codegen.compile import compiled, inner, intrinsic
from kernattn.ops._numba.codegen.halves import round_off
from kernattn.ops._numba.codegen.memory import aligned, whole, window
from kernattn.ops._numba.codegen.registers import Block, lanes
from kernattn.ops._numba.far.clamped import lower_far, raise_far, within
from kernattn.ops._numba.tiles.chunk import row_scales
from kernattn.ops._numba.tiles.finish import far_scales, finish_features, limit_of
from kernattn.ops._numba.tiles.maps import unpack
from kernattn.ops._numba.tiles.products import transpose
from kernattn.ops._numba.tiles.rows import as_read, read_rows


def _butterflies(radix, weighted):
    """Return the intrinsic that transforms `radix` vectors, `step` vectors apart, first times their weights or not."""

    @intrinsic
    def butterflies(context, tile, at, step, weights, weights_at):
        position = types.intp

        def codegen(context, builder, signature, args):
            k = Block(context, builder, tile.dtype)
            data, first = k.pointer(tile, args[0]), builder.mul(args[1], k.number(k.width))
            offsets = [builder.add(first, builder.mul(k.number(i * k.width), args[2])) for i in range(radix)]
            x = [k.load(k.at(data, offset)) for offset in offsets]
            if weighted:
                given = k.pointer(weights, args[3])
                for i in range(radix):
                    at_row = k.at(given, args[4], builder.add(args[1], builder.mul(k.number(i), args[2])))
                    x[i] = builder.fmul(x[i], k.splat(builder.load(at_row)))
            half = 1
            while half < radix:
                for i in range(radix):
                    if not i & half:
                        low, high = x[i], x[i + half]
                        x[i], x[i + half] = builder.fadd(low, high), builder.fsub(low, high)
                half *= 2
            for i in range(radix):
                k.store(x[i], k.at(data, offsets[i]))
            return context.get_dummy_value()

        return types.void(tile, position, position, weights, position), codegen

    return butterflies


_two, _four, _eight = _butterflies(2, False), _butterflies(4, False), _butterflies(8, False)
_weighted_two, _weighted_four, _weighted_eight = _butterflies(2, True), _butterflies(4, True), _butterflies(8, True)


@inner
def _transform(tile, p, weights, weights_at):
    """x <- H (weights x) for vectors x_0 ... x_p-1 of rows."""
    half = 1
    if p == 1:
        for i in range(tile.size):
            tile[i] *= weights[weights_at]
        return
    if p >= 8:
        for i in range(0, p, 8):
            _weighted_eight(tile, i, 1, weights, weights_at)
        half = 8
    elif p == 4:
        _weighted_four(tile, 0, 1, weights, weights_at)
        half = 4
    else:
        _weighted_two(tile, 0, 1, weights, weights_at)
        half = 2
    while half < p:
        if p // half >= 8:
            for group in range(0, p, 8 * half):
                for i in range(group, group + half):
                    _eight(tile, i, half, weights, 0)
            half *= 8
        elif p // half == 4:
            for i in range(half):
                _four(tile, i, half, weights, 0)
            half *= 4
        else:
            for i in range(half):
                _two(tile, i, half, weights, 0)
            half *= 2


@compiled
def write_chains(arrays, dim, diagonals, links, p, norms, x, n, out, no_mask, low, high):
    """Write the features of groups low to high of `lanes` rows of x (n, d) to out (n, M), both (floats, bits, kind)."""
    phi, diagonals, norms, x = unpack(arrays), whole(diagonals), whole(norms), as_read(x)
    floats, bits, kind = out
    frequencies, features = phi.frequencies, phi.features
    width = lanes(norms)
    row = 2 * p + width
    packed, scales = aligned(width * dim, norms), aligned(width, norms)
    upright, work = aligned(p * width, norms), aligned(p * width, norms)
    tile, block = aligned(width * row, norms), aligned(0 if kind == 0 else width * features, norms)
    no_scales, lowered = window(norms, 0, 0), np.zeros(width, np.int64)
    far = norms.dtype.type(2.0**-60)  # sums of such rows are far from any end
    for group in range(low, high):
        first = group * width
        rows = min(width, n - first)
        into, to = (whole(floats), first * features) if kind == 0 else (whole(block), 0)
        read_rows(x, first * dim, rows, dim, no_mask, 0, packed, dim)
        row_scales(phi.weights, packed, rows, dim, dim, no_scales, 0, no_mask, 0, scales)
        near = within(window(packed, 0, rows * dim), far)
        if not near:
            far_scales(phi, packed, rows, dim, far, scales)
        for j in range(rows):
            lowered[j] = 0 if near else lower_far(window(packed, j * dim, dim), far)
        transpose(packed, 0, dim, width, dim, upright, 0, width)
        for begin in range(0, frequencies, p):
            for i in range(p * width):
                work[i] = upright[i]
            for link in range(links):
                _transform(work, p, diagonals, (begin // p * links + link) * p)
            count = min(p, frequencies - begin)
            transpose(work, 0, width, p, width, tile, 0, row)
            for j in range(rows):
                u, scale = window(tile, j * row, count), window(norms, begin, count)
                for a in range(count):
                    u[a] *= scale[a]
                if lowered[j] > 0:
                    raise_far(u, lowered[j], limit_of(phi, u))
            finish_features(phi, tile, rows, row, begin, count, scales, into, to, features)
        if kind != 0:
            round_off(block, 0, rows * features, bits, kind, first * features)
