"""Fourier transforms of count sketches, one row to a vector lane: the tile is in cache, and no transform is written.

A tile z holds bucket b of the count sketches of L rows at b L + lane. Buckets 2 j and 2 j + 1 count as the real and
the imaginary part of point j: the transform of these M / 2 complex points gives the spectrum of the M real ones, row by
row, so that no row feels its neighbours. Transforms leave their frequencies in digit-reversed places, which costs
nothing: the product of spectra looks up where they are.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from kernattn._array import Host
from kernattn.ops._numba.compile import compiled, inner, intrinsic
from kernattn.ops._numba.linear import aligned
from kernattn.ops._numba.products import Block, lanes, transpose, vector_length

__all__ = ["places", "rows_of_tile", "sketch_csr", "sketch_rows", "twiddles"]

NEAR = 256  # points of a transform that stays in the first cache from here on


def rows_of_tile(dtype: Any) -> int:
    """Return how many rows a tile takes."""
    return vector_length(dtype)


def twiddles(points: int) -> Host:
    """Return cos and -sin of 2 pi j / M for all j, (2, M)."""
    angle = 2 * np.pi * np.arange(points) / points
    return np.stack([np.cos(angle), -np.sin(angle)])


def places(points: int) -> NDArray[np.int64]:
    """Return where the transform leaves each frequency: digits in base 4, a last one in base 2, in reversed order."""
    frequency, step, size = np.zeros(1, dtype=np.int64), 1, points
    while size > 1:
        radix = 4 if size % 4 == 0 else 2
        frequency = (frequency[:, None] + step * np.arange(radix)).ravel()
        step, size = step * radix, size // radix
    return np.argsort(frequency)


def _complex_block(context, builder, array, value):
    """Return loads and stores of complex points of a tile."""
    k = Block(context, builder, array.dtype)
    data = k.pointer(array, value)

    def load(at):
        return k.load(k.at(data, at)), k.load(k.at(data, at, k.width))

    def store(at, point):
        k.store(point[0], k.at(data, at))
        k.store(point[1], k.at(data, at, k.width))

    return k, load, store


def _times(builder, fma, x, y):
    """Return the product of two complex vectors."""
    (a, b), (c, d) = x, y
    negated = builder.fneg(builder.fmul(b, d))
    return builder.call(fma, [a, c, negated]), builder.call(fma, [a, d, builder.fmul(b, c)])


def _butterfly(turned):
    """Return the intrinsic of a radix-4 step on points z[at + i stride], i < 4: results turned by w, w^2, w^3."""

    @intrinsic
    def step(context, z, at, stride, c1, s1, c2, s2, c3, s3):
        index, scalar = types.intp, z.dtype

        def codegen(context, builder, signature, args):
            k, load, store = _complex_block(context, builder, z, args[0])
            places = [builder.add(args[1], builder.mul(k.number(i), args[2])) for i in range(4)]
            (ar, ai), (br, bi), (cr, ci), (dr, di) = (load(place) for place in places)
            add, sub, fma = builder.fadd, builder.fsub, k.multiply_add()
            pr, pi, mr, mi = add(ar, cr), add(ai, ci), sub(ar, cr), sub(ai, ci)
            qr, qi, nr, ni = add(br, dr), add(bi, di), sub(br, dr), sub(bi, di)
            results = [
                (add(pr, qr), add(pi, qi)),
                (add(mr, ni), sub(mi, nr)),
                (sub(pr, qr), sub(pi, qi)),
                (sub(mr, ni), add(mi, nr)),
            ]
            store(places[0], results[0])
            for i in range(1, 4):
                if turned:
                    factor = k.splat(args[2 * i + 1]), k.splat(args[2 * i + 2])
                    results[i] = _times(builder, fma, results[i], factor)
                store(places[i], results[i])
            return context.get_dummy_value()

        return types.void(z, index, index, *(scalar,) * 6), codegen

    return step


_turned, _plain = _butterfly(True), _butterfly(False)


@intrinsic
def _pair(context, z, at, stride):
    """Replace two points of z by their sum and difference."""

    def codegen(context, builder, signature, args):
        _, load, store = _complex_block(context, builder, z, args[0])
        other = builder.add(args[1], args[2])
        (ar, ai), (br, bi) = load(args[1]), load(other)
        store(args[1], (builder.fadd(ar, br), builder.fadd(ai, bi)))
        store(other, (builder.fsub(ar, br), builder.fsub(ai, bi)))
        return context.get_dummy_value()

    return types.void(z, types.intp, types.intp), codegen


def _combination(first):
    """Return the intrinsic that multiplies the products at frequencies f and M / 2 - f by twice the spectrum.

    With u, v the transform at f and at its mirror g = M / 2 - f, it is E + w O at f and the conjugate of E - w O at g,
    where E = u + conj v, O = (u - conj v) / i and w = c + i s.
    """

    @intrinsic
    def multiply(context, z, at, mirror, c, s, products, real_f, imag_f, real_g, imag_g):
        index, scalar = types.intp, z.dtype

        def codegen(context, builder, signature, args):
            k, load, _ = _complex_block(context, builder, z, args[0])
            add, sub, fma = builder.fadd, builder.fsub, k.multiply_add()
            (ur, ui), (vr, vi) = load(args[1]), load(args[2])
            cosine, sine = k.splat(args[3]), k.splat(args[4])
            even, odd = (add(ur, vr), sub(ui, vi)), (add(ui, vi), sub(vr, ur))
            turned = _times(builder, fma, odd, (cosine, sine))
            data = k.pointer(products, args[5])
            spectrum = [
                (add(even[0], turned[0]), add(even[1], turned[1])),
                (sub(even[0], turned[0]), sub(turned[1], even[1])),
            ]
            for i, value in enumerate(spectrum):
                real_at, imag_at = k.at(data, args[6 + 2 * i]), k.at(data, args[7 + 2 * i])
                if not first:
                    value = _times(builder, fma, value, (k.load(real_at), k.load(imag_at)))
                k.store(value[0], real_at)
                k.store(value[1], imag_at)
            return context.get_dummy_value()

        return types.void(z, index, index, scalar, scalar, products, *(index,) * 4), codegen

    return multiply


_begin, _multiply = _combination(True), _combination(False)


@inner
def _pass(z, start, size, twiddle):
    """Take the radix-4 steps of one block of `size` points, which leaves four transforms of a quarter each."""
    unit = 2 * lanes(z)
    quarter = size // 4
    one, zero = twiddle[0, 0], twiddle[1, 0]
    _plain(z, start * unit, quarter * unit, one, zero, one, zero, one, zero)
    turn = twiddle.shape[1] // size
    for k in range(1, quarter):
        j = k * turn
        _turned(
            z, (start + k) * unit, quarter * unit,
            twiddle[0, j], twiddle[1, j], twiddle[0, 2 * j], twiddle[1, 2 * j], twiddle[0, 3 * j], twiddle[1, 3 * j],
        )  # fmt: skip


@inner
def _passes(z, start, count, largest, smallest, twiddle):
    """Transform `count` points from blocks of `largest` down to blocks of `smallest` points."""
    unit = 2 * lanes(z)
    size = largest
    while size > smallest:
        if size == 2:
            for at in range(start, start + count, 2):
                _pair(z, at * unit, unit)
            size = 1
        else:
            for at in range(start, start + count, size):
                _pass(z, at, size, twiddle)
            size //= 4


@inner
def _transform(z, twiddle, points):
    """Transform all points; blocks that fit the first cache are finished one after the other."""
    near = points
    while near > NEAR:
        near //= 4
    _passes(z, 0, points, points, near, twiddle)
    for start in range(0, points, near):
        _passes(z, start, near, near, 1, twiddle)


@inner
def _multiply_spectra(z, place, twiddle, products, first):
    """Multiply the products by the spectra in z: columns Re 0, Re 1, Im 1, ..., Re M / 2, and four nobody reads."""
    width, points = lanes(z), len(place)
    unit, features = 2 * width, 2 * points
    for f in range(points // 2 + 1):
        g = points - f
        at, mirror = place[f] * unit, place[g % points] * unit
        real_f, imag_f, real_g, imag_g = 2 * f - 1, 2 * f, 2 * g - 1, 2 * g
        if f == 0:
            real_f, imag_f, imag_g = 0, features, features + 1
        elif f == g:
            real_g, imag_g = features + 2, features + 3
        columns = real_f * width, imag_f * width, real_g * width, imag_g * width
        if first:
            _begin(z, at, mirror, twiddle[0, f], twiddle[1, f], products, *columns)
        else:
            _multiply(z, at, mirror, twiddle[0, f], twiddle[1, f], products, *columns)


@inner
def _write(products, features, rows, out, at):
    """Write the features of a tile of rows; frequencies 0 and M / 2 come once in the whole spectrum, not twice."""
    width = lanes(products)
    half = products.dtype.type(0.5**0.5)
    for lane in range(width):
        products[lane] *= half
        products[(features - 1) * width + lane] *= half
    transpose(products, 0, width, features, rows, out, at, features)


@compiled
def sketch_rows(x, dim, index, weight, twiddle, place, out, rows, low, high):
    """Write the features of tiles low to high of rows; x (rows, dim) and out (rows, M) are flat."""
    width, features = lanes(out), twiddle.shape[1]
    z, products = aligned(features * width, out), aligned((features + 4) * width, out)
    columns = aligned(dim * width, out)
    for tile in range(low, high):
        start = tile * width
        count = min(width, rows - start)
        transpose(x, start * dim, dim, count, dim, columns, 0, width)
        for i in range(len(index)):
            z[:] = 0
            for j in range(dim):
                at, w = index[i, j] * width, weight[i, j]
                for lane in range(width):
                    z[at + lane] += w * columns[j * width + lane]
            _transform(z, twiddle, len(place))
            _multiply_spectra(z, place, twiddle, products, i == 0)
        _write(products, features, count, out, start * features)


@compiled
def sketch_csr(data, indices, indptr, index, weight, twiddle, place, out, rows, low, high):
    """Write the features of tiles low to high of the rows of a CSR matrix; out (rows, M) is flat."""
    width, features = lanes(out), twiddle.shape[1]
    z, products = aligned(features * width, out), aligned((features + 4) * width, out)
    for tile in range(low, high):
        start = tile * width
        count = min(width, rows - start)
        for i in range(len(index)):
            z[:] = 0
            for r in range(count):
                for t in range(indptr[start + r], indptr[start + r + 1]):
                    j = indices[t]
                    z[index[i, j] * width + r] += weight[i, j] * data[t]
            _transform(z, twiddle, len(place))
            _multiply_spectra(z, place, twiddle, products, i == 0)
        _write(products, features, count, out, start * features)
