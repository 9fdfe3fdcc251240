"""Fourier transforms of count sketches, one row to a vector lane: the tile is in cache, and no transform is written.

Buckets 2 j and 2 j + 1 of a row's count sketch count as the real and the imaginary part of point j: the transform of
these M / 2 complex points gives the spectrum of the M real ones, row by row, so that no row feels its neighbours.
Spectra stay where the transform leaves them. The first pass of a transform reads the columns themselves, unless they
are many or every row has its own, as in a CSR matrix.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from kernattn._array import Host
from kernattn.ops._numba.compile import compiled, inner, intrinsic
from kernattn.ops._numba.fourier import begin, begin_sparse, complex_block, complex_product, finish
from kernattn.ops._numba.linear import aligned
from kernattn.ops._numba.products import lanes, transpose, vector_length
from kernattn.ops.tensor_sketch.order import decimated, radices

__all__ = ["mirrors", "roots", "rows_of_tile", "sketch_csr", "sketch_rows", "turns"]


def rows_of_tile(dtype: Any) -> int:
    """Return how many rows a tile takes."""
    return vector_length(dtype)


def turns(points: int) -> Host:
    """Return the factors by which the passes turn their results, in the order of use, cos and -sin of their angles."""
    parts, size = [np.zeros(0)], points
    for radix in radices(points)[:-1]:
        angle = 2 * np.pi / size * np.outer(np.arange(size // radix), np.arange(1, radix))
        parts.append(np.stack([np.cos(angle), -np.sin(angle)], axis=-1).ravel())
        size //= radix
    return np.concatenate(parts)


def roots(points: int) -> Host:
    """Return cos and -sin of 2 pi j / M for all j, (M, 2)."""
    angle = 2 * np.pi * np.arange(points) / points
    return np.stack([np.cos(angle), -np.sin(angle)], axis=1)


def mirrors(points: int) -> NDArray[np.int64]:
    """Return f and the places of frequencies f and M / 2 - f, one of each pair, in the order of the tile; not f = 0."""
    frequency = decimated(points)
    place = np.argsort(frequency)
    triples = np.stack([frequency, place[frequency], place[-frequency]], axis=1)[1:]
    return triples[triples[:, 1] <= triples[:, 2]]


def _combination(first):
    """Return the intrinsic that multiplies the products at frequencies f and M / 2 - f by twice the spectrum.

    With u, v the transform at f and at its mirror g = M / 2 - f, it is E + w O at f and the conjugate of E - w O at g,
    where E = u + conj v, O = (u - conj v) / i and w = c + i s.
    """

    @intrinsic
    def multiply(context, z, at, mirror, c, s, products):
        index, scalar = types.intp, z.dtype

        def codegen(context, builder, signature, args):
            k, load, _ = complex_block(context, builder, z, args[0])
            _, load_product, store_product = complex_block(context, builder, products, args[5])
            add, sub = builder.fadd, builder.fsub
            (ur, ui), (vr, vi) = load(args[1]), load(args[2])
            even, odd = (add(ur, vr), sub(ui, vi)), (add(ui, vi), sub(vr, ur))
            turned = complex_product(k, odd, (k.splat(args[3]), k.splat(args[4])))
            spectrum = [
                (add(even[0], turned[0]), add(even[1], turned[1])),
                (sub(even[0], turned[0]), sub(turned[1], even[1])),
            ]
            if not first:
                before = [load_product(place) for place in args[1:3]]
                spectrum = [complex_product(k, x, y) for x, y in zip(spectrum, before, strict=True)]
            for place, value in zip(args[1:3], spectrum, strict=True):
                store_product(place, value)
            return context.get_dummy_value()

        return types.void(z, index, index, scalar, scalar, products), codegen

    return multiply


_begin, _multiply = _combination(True), _combination(False)


@inner
def _multiply_spectra(z, pairs, root, products, first):
    """Multiply the products by twice the spectra in z; in place 0 are frequencies 0 and M / 2, both real."""
    width = lanes(z)
    unit = 2 * width
    double = z.dtype.type(2**0.5 if first else 2)  # these two come once in the whole spectrum, the others twice
    for lane in range(width):
        one, other = double * (z[lane] + z[width + lane]), double * (z[lane] - z[width + lane])
        if not first:
            one, other = one * products[lane], other * products[width + lane]
        products[lane], products[width + lane] = one, other
    for i in range(len(pairs)):
        f, at, mirror = pairs[i, 0], pairs[i, 1] * unit, pairs[i, 2] * unit
        if first:
            _begin(z, at, mirror, root[f, 0], root[f, 1], products)
        else:
            _multiply(z, at, mirror, root[f, 0], root[f, 1], products)


@inner
def _sorted_entries(index, weight, root, rows, factors, starts):
    """Sort the columns by bucket // 2 modulo M / 16, and write their shares in the results of the first pass."""
    features = len(root)
    part = features // 16
    starts[:] = 0
    for b in index:
        starts[b // 2 % part + 1] += 1
    for j in range(part):
        starts[j + 1] += starts[j]
    for row in range(len(index)):
        b = index[row]
        j = b // 2 % part
        t = starts[j]
        starts[j] += 1
        rows[t] = row
        for i in range(8):
            k = b // 2 * 2 * i % features
            c, s = root[k, 0], root[k, 1]
            real, imag = (-s, c) if b % 2 else (c, s)
            factors[16 * t + 2 * i], factors[16 * t + 2 * i + 1] = weight[row] * real, weight[row] * imag
    for j in range(part, 0, -1):
        starts[j] = starts[j - 1]
    starts[0] = 0


@compiled
def sketch_rows(x, dim, index, weight, turn, pairs, root, out, rows, low, high):
    """Write the features of tiles low to high of rows; x (rows, dim) and out (rows, M) are flat."""
    width, features = lanes(out), len(root)
    points, copies = features // 2, len(index)
    few = points > 16 and 2 * dim <= features
    z, products, columns = aligned(features * width, out), aligned(features * width, out), aligned(dim * width, out)
    order = np.empty((copies, dim), np.int64)
    shares = np.empty((copies, 16 * dim), out.dtype)
    starts = np.empty((copies, features // 16 + 1), np.int64)
    if few:
        for i in range(copies):
            _sorted_entries(index[i], weight[i], root, order[i], shares[i], starts[i])
    for tile in range(low, high):
        start = tile * width
        count = min(width, rows - start)
        transpose(x, start * dim, dim, count, dim, columns, 0, width)
        for i in range(copies):
            if few:
                begin_sparse(z, points, columns, order[i], shares[i], starts[i])
            else:
                z[:] = 0
                for j in range(dim):
                    at, w = index[i, j] * width, weight[i, j]
                    for lane in range(width):
                        z[at + lane] += w * columns[j * width + lane]
                begin(z, points, turn)
            finish(z, points, turn)
            _multiply_spectra(z, pairs, root, products, i == 0)
        transpose(products, 0, width, features, count, out, start * features, features)


@compiled
def sketch_csr(data, indices, indptr, index, weight, turn, pairs, root, out, rows, low, high):
    """Write the features of tiles low to high of the rows of a CSR matrix; out (rows, M) is flat."""
    width, features = lanes(out), len(root)
    points = features // 2
    z, products = aligned(features * width, out), aligned(features * width, out)
    for tile in range(low, high):
        start = tile * width
        count = min(width, rows - start)
        for i in range(len(index)):
            z[:] = 0
            for r in range(count):
                for t in range(indptr[start + r], indptr[start + r + 1]):
                    j = indices[t]
                    z[index[i, j] * width + r] += weight[i, j] * data[t]
            begin(z, points, turn)
            finish(z, points, turn)
            _multiply_spectra(z, pairs, root, products, i == 0)
        transpose(products, 0, width, features, count, out, start * features, features)
