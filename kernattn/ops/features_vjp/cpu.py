"""Cotangents of rows by Numba: no features are written, a block's meet their cotangents while they lie in cache."""

from functools import partial
from math import prod
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._maps.spec import MapSpec
from kernattn._runtime.parallel import share
from kernattn._sums.cotangents import MapCotangent
from kernattn.ops._numba.codegen.registers import ROWS, vector_length
from kernattn.ops._numba.tiles.layout import NO_MASK, accumulation, room, rows, seconds_of, settled
from kernattn.ops._numba.tiles.packing import pack_map
from kernattn.ops.features.sides import given_scales
from kernattn.ops.features_vjp import reference
from kernattn.ops.features_vjp.loops import pull_features
from kernattn.ops.recast import narrow_cotangents, widen

CHUNK, TILE_BYTES = 64, 1 << 17  # rows of a block, and of one part of its features
SLABS = 16  # of rows, each with sums of its own for what is learnt, whatever the number of threads


def features_vjp(x: Array, spec: MapSpec, g: Array, learn: bool) -> MapCotangent:
    """Leave rows that are far from ordinary to array operations, and all of them where numbers are learnt.

    Chains of Hadamard transforms count as the matrix that they make up.
    """
    dtype = accumulation(x)
    *lead, dim = x.shape
    phi, n = pack_map(spec, dtype, dim), prod(lead)
    blocks, (height, row) = -(-n // CHUNK), _tile(phi.frequencies, dim, dtype)
    slabs = min(SLABS, blocks) if learn else blocks
    of_omega = height * row * phi.projects
    numbers = np.zeros((slabs, of_omega + phi.features + dim if learn else 0), dtype)
    dx, far = room((*lead, dim), dtype), np.zeros(n, bool)
    slopes = np.empty(n if spec.scales_apart else 0, dtype)
    own, given, of_features = rows(x, dtype), given_scales(x, spec, dtype), rows(g, dtype)
    pull = partial(
        pull_features, phi.arrays, own, given, of_features, n, dx.reshape(-1), slopes, numbers.reshape(-1), far,
        NO_MASK, of_omega, CHUNK, TILE_BYTES // (CHUNK * dtype.itemsize), slabs,
    )  # fmt: skip
    flops = 2.0 * (2 + learn) * phi.frequencies * dim * phi.projects
    share(pull, slabs, n * seconds_of(flops, phi.features, dtype.itemsize))
    by_arrays = np.errstate(over="ignore", invalid="ignore")(reference.features_vjp)
    if learn and far.any():
        return narrow_cotangents(by_arrays(*widen(dtype, x, spec, g, learn)), x)
    if spec.scales_apart:
        with np.errstate(over="ignore", invalid="ignore"):
            dx += slopes.reshape(*lead, 1) * reference.slope(x.astype(dtype, copy=False), spec)
    if far.any():
        rest = widen(dtype, x.reshape(n, dim)[far], spec, g.reshape(n, -1)[far], False)
        dx.reshape(n, dim)[far] = by_arrays(*rest).x
    dx = settled(dx, x.dtype)
    if not learn:
        return MapCotangent(dx)
    total = numbers.sum(axis=0)
    omega, rest = total[:of_omega].reshape(-1, row)[: phi.frequencies, :dim], total[of_omega:]
    offset = rest[: phi.features]
    if spec.normalised:
        lost = reference.of_normaliser(x.astype(dtype, copy=False), spec, slopes.reshape(*lead, 1))
        omega, offset = omega + lost[0], offset + lost[1]
    return MapCotangent(
        dx,
        None if spec.omega is None else omega,
        None if spec.offset is None else offset,
        None if spec.row_weights is None else rest[phi.features :],
    )


def _tile(rows: int, columns: int, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the size of a tile that sums of so many rows and columns need."""
    lanes = vector_length(dtype)
    return -(-rows // ROWS) * ROWS, -(-(-(-columns // lanes) * lanes) // ROWS) * ROWS
