"""Fourier transforms of count sketches, one row to a vector lane: the tile is in cache, and no transform is written.

Buckets 2 j and 2 j + 1 of a row's count sketch count as the real and the imaginary part of point j: the transform of
these M / 2 complex points gives the spectrum of the M real ones, row by row, so that no row feels its neighbours.
Spectra stay where the transform leaves them, and those of the first two factors are multiplied without being written.
A transform begins with the columns themselves, unless they are many or every row has its own, as in a CSR matrix.
"""

import numpy as np
from numba import types
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64
from kernattn.ops._numba.codegen.compile import compiled, inner, intrinsic
from kernattn.ops._numba.codegen.halves import round_off
from kernattn.ops._numba.codegen.memory import aligned, window
from kernattn.ops._numba.codegen.registers import lanes
from kernattn.ops._numba.tiles.products import transpose
from kernattn.ops._numba.tiles.rows import as_read, room_of
from kernattn.ops.tensor_sketch.order import decimate_order, radices
from kernattn.ops.tensor_sketch.transform_loops import complex_block, complex_product, transform, transform_sparse


def turns(points: int) -> Float64:
    """Return the factors by which the passes turn their results, in the order of use, cos and -sin of their angles."""
    parts, size = [np.zeros(0)], points
    for radix in radices(points)[:-1]:
        angle = 2 * np.pi / size * np.outer(np.arange(size // radix), np.arange(1, radix))
        parts.append(np.stack([np.cos(angle), -np.sin(angle)], axis=-1).ravel())
        size //= radix
    return np.concatenate(parts)


def mirrors(points: int) -> NDArray[np.int64]:
    """Return f and the places of frequencies f and M / 2 - f, one of each pair, in the order of the tile; not f = 0."""
    frequency = decimate_order(points)
    place = np.argsort(frequency)
    triples = np.stack([frequency, place[frequency], place[-frequency]], axis=1)[1:]
    return triples[triples[:, 1] <= triples[:, 2]]


def _combination(count, first):
    """Return the intrinsic that multiplies the products at frequencies f and M / 2 - f by `count` doubled spectra.

    With u, v the transform at f and at its mirror g = M / 2 - f, it is E + w O at f and the conjugate of E - w O at g,
    where E = u + conj v, O = (u - conj v) / i and w = c + i s. The transforms are `apart` numbers apart.
    """

    @intrinsic
    def multiply(context, z, at, mirror, apart, turn, turn_at, products):
        index = types.intp

        def codegen(context, builder, signature, args):
            k, load, _ = complex_block(context, builder, z, args[0])
            _, load_product, store_product = complex_block(context, builder, products, args[6])
            given = k.pointer(turn, args[4])
            turned_by = [k.splat(builder.load(k.at(given, args[5], part))) for part in (0, 1)]
            add, sub = builder.fadd, builder.fsub
            result = [] if first else [load_product(place) for place in args[1:3]]
            for i in range(count):
                (ur, ui), (vr, vi) = (
                    load(builder.add(place, builder.mul(k.number(i), args[3]))) for place in args[1:3]
                )
                even, odd = (add(ur, vr), sub(ui, vi)), (add(ui, vi), sub(vr, ur))
                turned = complex_product(k, odd, turned_by)
                spectrum = [
                    (add(even[0], turned[0]), add(even[1], turned[1])),
                    (sub(even[0], turned[0]), sub(turned[1], even[1])),
                ]
                if result:
                    spectrum = [complex_product(k, x, y) for x, y in zip(spectrum, result, strict=True)]
                result = spectrum
            for place, value in zip(args[1:3], result, strict=True):
                store_product(place, value)
            return context.get_dummy_value()

        return types.void(z, index, index, index, turn, index, products), codegen

    return multiply


_one, _two, _another = _combination(1, True), _combination(2, True), _combination(1, False)


@inner
def _multiply_spectra(z, count, first, pairs, turn, products):
    """Multiply the products by `count` doubled spectra; in place 0 are frequencies 0 and M / 2, both real."""
    width = lanes(z)
    unit, apart = 2 * width, len(z) // 2
    once = z.dtype.type(2**-0.5)  # these two come once in the whole spectrum, the others twice
    for lane in range(width):
        one, other = (once, once) if first else (products[lane], products[width + lane])
        for at in range(lane, count * apart, apart):
            one *= 2 * (z[at] + z[at + width])
            other *= 2 * (z[at] - z[at + width])
        products[lane], products[width + lane] = one, other
    for i in range(len(pairs)):
        at, mirror = pairs[i, 0] * unit, pairs[i, 1] * unit
        if not first:
            _another(z, at, mirror, apart, turn, 2 * i, products)
        elif count == 2:
            _two(z, at, mirror, apart, turn, 2 * i, products)
        else:
            _one(z, at, mirror, apart, turn, 2 * i, products)


@inner
def _sorted_entries(index, weight, root, sections, rows, shares, starts):
    """Sort the columns by bucket // 2 modulo M / (2 sections), and write their shares in the sections."""
    part = len(root) // (2 * sections)
    starts[:] = 0
    for b in index:
        starts[b // 2 % part + 1] += 1
    for j in range(part):
        starts[j + 1] += starts[j]
    for row in range(len(index)):
        j = index[row] // 2 % part
        rows[starts[j]] = row
        starts[j] += 1
    for j in range(part, 0, -1):
        starts[j] = starts[j - 1]
    starts[0] = 0
    groups = sections // 8
    for k in range(groups):
        for t in range(len(index)):
            b, w = index[rows[t]], weight[rows[t]]
            for i in range(8):
                turn = 2 * (k + groups * i) * (b // 2) % len(root)
                c, s = root[turn, 0], root[turn, 1]
                real, imag = (-s, c) if b % 2 else (c, s)
                shares[k, 16 * t + 2 * i], shares[k, 16 * t + 2 * i + 1] = w * real, w * imag


@inner
def _sections(dim, features, rows, width):
    """Return in how many sections a transform begins that reads columns: 0 where it is faster to read buckets.

    Two passes at once gain a little where columns are few against M, and nothing in a few tiles, where the table of
    shares takes what the tiles gain.
    """
    if features <= 32 or 2 * dim > features:
        return 0
    return 64 if features >= 1024 and 40 * dim <= features and rows >= 16 * width else 8


@compiled
def sketch_rows(x, dim, index, weight, factors, pairs, turn, root, out, rows, low, high):
    """Write the features of tiles low to high of rows; x (rows, dim), flat, and out (rows, M), (floats, bits, kind)."""
    floats, bits, kind = as_read(out)
    width, features = lanes(x), len(root)
    points, copies = features // 2, len(index)
    apart = features * width
    z, products, columns = aligned(2 * apart, x), aligned(apart, x), aligned(dim * width, x)
    room = aligned(room_of(apart, out), x)
    sections = _sections(dim, features, rows, width)
    order = np.empty((copies, dim), np.int64)
    shares = np.empty((copies, sections // 8, 16 * dim), x.dtype)
    starts = np.empty((copies, points // max(sections, 1) + 1), np.int64)
    if sections > 0:
        for i in range(copies):
            _sorted_entries(index[i], weight[i], root, sections, order[i], shares[i], starts[i])
    for tile in range(low, high):
        start = tile * width
        count = min(width, rows - start)
        transpose(x, start * dim, dim, count, dim, columns, 0, width)
        for i in range(copies):
            line = window(z, apart if i == 1 else 0, apart)
            if sections > 0:
                transform_sparse(line, points, sections, columns, order[i], shares[i], starts[i], factors)
            else:
                line[:] = 0
                for j in range(dim):
                    at, w = index[i, j] * width, weight[i, j]
                    for lane in range(width):
                        line[at + lane] += w * columns[j * width + lane]
                transform(line, points, factors)
            if i > 0 or copies == 1:
                _multiply_spectra(z, 2 if i == 1 else 1, i < 2, pairs, turn, products)
        if kind == 0:
            transpose(products, 0, width, features, count, floats, start * features, features)
        else:
            transpose(products, 0, width, features, count, room, 0, features)
            round_off(room, 0, count * features, bits, kind, start * features)


@compiled
def sketch_csr(data, indices, indptr, index, weight, factors, pairs, turn, root, out, rows, low, high):
    """Write the features of tiles low to high of the rows of a CSR matrix; out (rows, M) is flat."""
    width, features = lanes(out), len(root)
    points, copies = features // 2, len(index)
    apart = features * width
    z, products = aligned(2 * apart, out), aligned(apart, out)
    for tile in range(low, high):
        start = tile * width
        count = min(width, rows - start)
        for i in range(copies):
            line = window(z, apart if i == 1 else 0, apart)
            line[:] = 0
            for r in range(count):
                for t in range(indptr[start + r], indptr[start + r + 1]):
                    j = indices[t]
                    line[index[i, j] * width + r] += weight[i, j] * data[t]
            transform(line, points, factors)
            if i > 0 or copies == 1:
                _multiply_spectra(z, 2 if i == 1 else 1, i < 2, pairs, turn, products)
        transpose(products, 0, width, features, count, out, start * features, features)
