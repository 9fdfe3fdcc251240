"""Fourier transforms of count sketches, one row to a vector lane: the tile is in cache, and no transform is written.

A tile holds two vectors of rows, A and B. Point b of the tile z is bucket b of a count sketch of all of them: lanes of
A, then lanes of B, 2 L numbers. Read as A + i B this is one complex sequence of M points for two real ones. Transforms
leave their frequencies in digit-reversed places, which costs nothing: the product of spectra looks up where they are.
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
from kernattn.ops._numba.products import _Block, _count, lanes, transpose

__all__ = ["places", "rows_of_tile", "sketch_csr", "sketch_rows", "twiddles"]

NEAR = 256  # points of a transform that stays in the first cache from here on


def rows_of_tile(dtype: Any) -> int:
    """Return how many rows a tile takes."""
    return 2 * _count(dtype)


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
    k = _Block(context, builder, array.dtype)
    data = k.pointer(array, value)

    def load(at):
        return k.load(k.at(data, at)), k.load(k.at(data, at, k.width))

    def store(at, point):
        k.store(point[0], k.at(data, at))
        k.store(point[1], k.at(data, at, k.width))

    return k, load, store


def _butterfly(turned):
    """Return the intrinsic of a radix-4 step on the points z[at + i stride], i < 4: results turned by w, w^2, w^3."""

    @intrinsic
    def step(context, z, at, stride, c1, s1, c2, s2, c3, s3):
        index, scalar = types.intp, z.dtype

        def codegen(context, builder, signature, args):
            k, load, store = _complex_block(context, builder, z, args[0])
            places = [builder.add(args[1], builder.mul(k.number(i), args[2])) for i in range(4)]
            (ar, ai), (br, bi), (cr, ci), (dr, di) = (load(place) for place in places)
            add, sub, mul, fma = builder.fadd, builder.fsub, builder.fmul, k.multiply_add()
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
                real, imag = results[i]
                if turned:
                    c, s = k.splat(args[2 * i + 1]), k.splat(args[2 * i + 2])
                    real, imag = (
                        builder.call(fma, [real, c, builder.fneg(mul(imag, s))]),
                        builder.call(fma, [real, s, mul(imag, c)]),
                    )
                store(places[i], (real, imag))
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
    """Return the intrinsic that multiplies the products so far by twice the spectra of A and B at one frequency.

    It reads z at the frequency and at its negative, where the spectrum of a real sequence is the conjugate.
    """

    @intrinsic
    def multiply(context, z, at, mirror, products, real_at, imag_at, plane):
        index = types.intp

        def codegen(context, builder, signature, args):
            k, load, _ = _complex_block(context, builder, z, args[0])
            add, sub, mul, fma = builder.fadd, builder.fsub, builder.fmul, k.multiply_add()
            (ur, ui), (vr, vi) = load(args[1]), load(args[2])
            data = k.pointer(products, args[3])
            for b, (real, imag) in enumerate([(add(ur, vr), sub(ui, vi)), (add(ui, vi), sub(vr, ur))]):
                shift = builder.mul(k.number(b), args[6])
                targets = [k.at(data, args[4], shift), k.at(data, args[5], shift)]
                if not first:
                    c, s = k.load(targets[0]), k.load(targets[1])
                    real, imag = (
                        builder.call(fma, [real, c, builder.fneg(mul(imag, s))]),
                        builder.call(fma, [real, s, mul(imag, c)]),
                    )
                k.store(real, targets[0])
                k.store(imag, targets[1])
            return context.get_dummy_value()

        return types.void(z, index, index, products, index, index, index), codegen

    return multiply


_begin, _multiply = _combination(True), _combination(False)


@inner
def _pass(z, start, size, twiddle, points):
    """Take the radix-4 steps of one block of `size` points, which leaves four transforms of a quarter each."""
    unit = 2 * lanes(z)
    quarter = size // 4
    one, zero = twiddle[0, 0], twiddle[1, 0]
    _plain(z, start * unit, quarter * unit, one, zero, one, zero, one, zero)
    turn = points // size
    for k in range(1, quarter):
        j = k * turn
        _turned(
            z, (start + k) * unit, quarter * unit,
            twiddle[0, j], twiddle[1, j], twiddle[0, 2 * j], twiddle[1, 2 * j], twiddle[0, 3 * j], twiddle[1, 3 * j],
        )  # fmt: skip


@inner
def _passes(z, start, count, largest, smallest, twiddle, points):
    """Transform `count` points from blocks of `largest` down to blocks of `smallest` points."""
    size = largest
    while size > smallest:
        if size == 2:
            for at in range(start, start + count, 2):
                _pair(z, at * 2 * lanes(z), 2 * lanes(z))
            size = 1
        else:
            for at in range(start, start + count, size):
                _pass(z, at, size, twiddle, points)
            size //= 4


@inner
def _transform(z, twiddle, points):
    """Transform all points; blocks that fit the first cache are finished one after the other."""
    near = points
    while near > NEAR:
        near //= 4
    _passes(z, 0, points, points, near, twiddle, points)
    for start in range(0, points, near):
        _passes(z, start, near, near, 1, twiddle, points)


@inner
def _multiply_spectra(z, place, products, points, first):
    """Multiply the products by the spectra in z: columns Re 0, Re 1, Im 1, ..., Re M / 2, and one for what is 0."""
    width = lanes(z)
    unit, plane = 2 * width, (points + 1) * width
    for f in range(points // 2 + 1):
        at, mirror = place[f] * unit, place[(points - f) % points] * unit
        real_at = max(2 * f - 1, 0) * width
        imag_at = (points if f == 0 or 2 * f == points else 2 * f) * width
        if first:
            _begin(z, at, mirror, products, real_at, imag_at, plane)
        else:
            _multiply(z, at, mirror, products, real_at, imag_at, plane)


@inner
def _write(products, points, rows, out, at):
    """Write the features of a tile of rows; frequencies 0 and M / 2 come once in the whole spectrum, not twice."""
    width = lanes(products)
    half = products.dtype.type(0.5**0.5)
    for b in range(2):
        plane = b * (points + 1) * width
        for lane in range(width):
            products[plane + lane] *= half
            products[plane + (points - 1) * width + lane] *= half
        count = min(width, rows - b * width)
        if count > 0:
            transpose(products, plane, width, points, count, out, at + b * width * points, points)


@compiled
def sketch_rows(x, dim, index, weight, twiddle, place, out, rows, low, high):
    """Write the features of tiles low to high of rows; x (rows, dim) and out (rows, M) are flat."""
    points, copies = len(place), len(index)
    unit = 2 * lanes(out)
    z, products = aligned(points * unit, out), aligned((points + 1) * unit, out)
    columns = aligned(dim * unit, out)
    for tile in range(low, high):
        start = tile * unit
        count = min(unit, rows - start)
        transpose(x, start * dim, dim, count, dim, columns, 0, unit)
        for i in range(copies):
            z[:] = 0
            for j in range(dim):
                at, w = index[i, j] * unit, weight[i, j]
                for lane in range(unit):
                    z[at + lane] += w * columns[j * unit + lane]
            _transform(z, twiddle, points)
            _multiply_spectra(z, place, products, points, i == 0)
        _write(products, points, count, out, start * points)


@compiled
def sketch_csr(data, indices, indptr, index, weight, twiddle, place, out, rows, low, high):
    """Write the features of tiles low to high of the rows of a CSR matrix; out (rows, M) is flat."""
    points, copies = len(place), len(index)
    unit = 2 * lanes(out)
    z, products = aligned(points * unit, out), aligned((points + 1) * unit, out)
    for tile in range(low, high):
        start = tile * unit
        count = min(unit, rows - start)
        for i in range(copies):
            z[:] = 0
            for r in range(count):
                for t in range(indptr[start + r], indptr[start + r + 1]):
                    j = indices[t]
                    z[index[i, j] * unit + r] += weight[i, j] * data[t]
            _transform(z, twiddle, points)
            _multiply_spectra(z, place, products, points, i == 0)
        _write(products, points, count, out, start * points)
