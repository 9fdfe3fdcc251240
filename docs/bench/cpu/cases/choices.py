"""What decisions rest on: chains or their matrix, transforms or weights, our products or those of a BLAS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np

from bench.cpu import peers
from bench.cpu.cases.inputs import normal
from bench.races import Race
from bench.sizes import Sizes
from kernattn._arrays.namespaces import Array, Float64
from kernattn.bench import Work
from kernattn.features import random_features
from kernattn.features._polynomial.sketches.weights import multiply_projections
from kernattn.kernels import Gaussian, Polynomial
from kernattn.ops.hadamard.reference import hadamard
from kernattn.projections import orthogonalize

LOOPS = 200

PRODUCTS = {
    "64-64-64": (64, 64, 64),
    "256-48-64": (256, 48, 64),
    "256-64-48": (256, 64, 48),
    "48-64-256": (48, 64, 256),
}
"""Rows, columns and inner indices of the products of FAVOR+ in a chunk: features, their sums, what queries read."""


def _hadamard(o: Sizes, dim: int, features: int) -> Any:
    kernel = Gaussian(lengthscale=float(np.sqrt(dim)))
    return random_features(kernel, dim, features, "phase", "hadamard", rng=o.seed)


def chains(o: Sizes) -> Race:
    """Features by Hadamard chains, and by a product with their matrix: n x d -> 4 d, by Numba and by the reference."""
    from kernattn.ops.hadamard.cpu import chain_features

    peers.limit_blas()
    (x,) = normal(o, (o.n, o.dim))
    m = 4 * o.dim
    phi = _hadamard(o, o.dim, m)
    dense = replace(phi, omega=np.asarray(phi.omega))
    columns = np.ascontiguousarray(dense.omega.T.astype(x.dtype))
    calls = {
        "ours": partial(phi, x),
        "chains by Numba": partial(chain_features, x, phi.spec.omega, phi.spec.unprojected),
        "matrix by Numba": partial(dense, x),
        "projections alone, chains by the reference": partial(hadamard, x, phi.omega),
        "projections alone, matrix by NumPy": lambda: x @ columns,
    }
    written = o.n * m * float(x.itemsize)
    sums = 3.0 * np.ceil(np.log2(o.dim)) * m
    return Race(calls, Work(x.nbytes + written, o.n * sums, o.n * float(m), written=written))


def drawn(o: Sizes) -> Race:
    """A redraw of Hadamard chains, 16 d -> 128 d, and with the matrix that they stand for written out."""
    phi = _hadamard(o, 16 * o.dim, 128 * o.dim)
    calls = {
        "ours": lambda: phi.redraw(1).omega,
        "ours, dense": lambda: np.asarray(phi.redraw(1).omega),
    }
    return Race(calls, Work(bytes=3 * 128.0 * o.dim))


def transforms(o: Sizes) -> Race:
    """Transforms of n rows of 16 d numbers in NumPy: by two small products, as the reference does, and by sums."""
    peers.limit_blas()
    (x,) = normal(o, (o.n, 16 * o.dim))
    phi = _hadamard(o, 16 * o.dim, 16 * o.dim)
    work = Work(2.0 * x.nbytes, 3.0 * x.size * np.log2(16 * o.dim), written=float(x.nbytes))
    return Race({"ours": partial(hadamard, x, phi.omega), "sums and differences": partial(_by_sums, x, phi)}, work)


def _by_sums(x: Float64, phi: Any) -> Array:
    """Return the projections by chains of one block, halves added and subtracted in place."""
    chains = phi.omega
    p = chains.diagonals.shape[-1]
    u = np.zeros((len(x), p), x.dtype)
    u[:, : x.shape[1]] = x
    for signs in chains.diagonals[0].astype(x.dtype):
        u *= signs * x.dtype.type(p**-0.5)
        half = 1
        while half < p:
            pairs = u.reshape(len(x), -1, 2, half)
            low, high = pairs[:, :, 0], pairs[:, :, 1]
            low += high
            high *= -2
            high += low
            half *= 2
    return u * chains.norms.astype(x.dtype)


def tensor_srht(o: Sizes) -> Race:
    """TensorSRHT of degree 3, rows of d numbers -> 4096: what it chooses, transforms, and products with its weights.

    All of them take as many rows at once as the map does.
    """
    from kernattn.ops.hadamard.cpu import hadamard as by_numba

    peers.limit_blas()
    (x,) = normal(o, (o.n, o.dim))
    m, degree = 4096, 3
    phi: Any = random_features(Polynomial(degree), o.dim, m, "tensor_srht", rng=o.seed)
    calls = {
        "ours": partial(phi, x),
        "transforms by Numba": partial(_in_blocks, partial(_transformed, phi, by_numba), phi, x),
        "transforms by the reference": partial(_in_blocks, partial(_transformed, phi, hadamard), phi, x),
        "products with the weights": partial(_in_blocks, lambda rows: multiply_projections(rows, phi.omega), phi, x),
    }
    blocks = -(-m // o.dim)
    written = o.n * m * float(x.itemsize)
    flops = o.n * degree * (blocks * o.dim * np.log2(o.dim) + m)
    return Race(calls, Work(x.nbytes + written, flops, written=written))


def frames(o: Sizes) -> Race:
    """Orthonormal rows of n / d blocks of d: Gram-Schmidt by Numba and in NumPy, and NumPy's QR."""
    peers.limit_blas()
    (blocks,) = normal(o, (max(1, o.n // o.dim), o.dim, o.dim))
    calls = {
        "ours": partial(orthogonalize, blocks, "gram_schmidt"),
        "Gram-Schmidt in NumPy": partial(orthogonalize, blocks, "gram_schmidt", backend="reference"),
        "NumPy's QR": partial(orthogonalize, blocks, "qr"),
    }
    return Race(calls, Work(2.0 * blocks.nbytes, 2.0 * blocks.size * o.dim, written=float(blocks.nbytes)))


def _in_blocks(features: Callable[[Float64], Array], phi: Any, x: Float64) -> Array:
    out = np.empty((len(x), phi.num_features_of(phi.dim)), x.dtype)
    for start in range(0, len(x), phi._block_rows):
        rows = slice(start, start + phi._block_rows)
        out[rows] = features(x[rows])
    return out


def _transformed(phi: Any, transform: Callable[[Array, Any], Array], x: Float64) -> Array:
    """Return the products over the factors of what features read of each factor's transforms."""
    factors = (np.take(transform(x, each), places, axis=-1) for each, places in phi._factors)
    return reduce(np.multiply, factors)


def tiles(o: Sizes, shape: tuple[int, int, int]) -> Race:
    """A product of tiles in cache, over and over in one compiled loop: ours, and SciPy's BLAS as Numba calls it."""
    from bench.cpu.cases.loops import blas, ours, room_of

    peers.limit_blas()
    m, n, inner = shape
    a, b = normal(o, (m, inner), (inner, n))
    c = np.zeros((m, n), o.dtype)
    calls = {
        "ours": partial(ours, a.reshape(-1), b.reshape(-1), room_of(m, n, o.dtype), m, n, inner, LOOPS),
        "BLAS": partial(blas, a, b, c, LOOPS),
    }
    return Race(calls, Work(flops=LOOPS * 2.0 * m * n * inner))
