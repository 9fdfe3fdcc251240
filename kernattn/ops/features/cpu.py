"""Features by Numba: projection and nonlinearity of a block of rows while it lies in cache."""

from functools import partial
from math import prod

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._maps.spec import MapSpec
from kernattn._runtime.parallel import share
from kernattn.ops._numba.tiles.layout import NO_MASK, accumulation, has_bits, narrow, room, rows, seconds_of, written
from kernattn.ops._numba.tiles.packing import pack_map
from kernattn.ops.features.crossover import FASTER_ABOVE, fast
from kernattn.ops.features.loops import write_features
from kernattn.ops.features.matrix import FASTER, on_unit
from kernattn.ops.features.matrix_loops import write_features_tiles
from kernattn.ops.features.sides import given_scales
from kernattn.ops.hadamard.cpu import chain_features

ROWS, TILE_BYTES = 64, 1 << 17  # of a block, which the second-level cache holds twice
ROOM = 1 << 18  # features of a block that are to have 16 bits


def features(x: Array, spec: MapSpec) -> Array:
    chains = None if spec.scales_apart else fast(spec.omega, FASTER_ABOVE["cpu"])
    if chains is not None:
        return chain_features(x, chains, spec.unprojected)
    dtype = accumulation(x)
    *lead, dim = x.shape
    phi, n = pack_map(spec, dtype, dim), prod(lead)
    halves = has_bits(x, dtype)
    out = room((*lead, phi.features), x.dtype if halves else dtype)
    chunk = max(8, min(ROWS, ROOM // phi.features)) if halves else ROWS
    given, span = given_scales(x, spec, dtype), TILE_BYTES // (ROWS * dtype.itemsize)
    seconds = n * seconds_of(2.0 * phi.frequencies * dim * phi.projects, phi.features, dtype.itemsize)

    def by_floats(x: Array, given: Array, out: Array, n: int, seconds: float) -> None:
        own, into = rows(x, dtype), written(out, dtype)
        share(partial(write_features, phi.arrays, own, given, n, into, NO_MASK, chunk, span), -(-n // chunk), seconds)

    if halves and on_unit(x, phi, n):
        own, into, told = rows(x, dtype), written(out, dtype), np.zeros(n, np.uint8)
        tiles = partial(write_features_tiles, phi.arrays, own, given, into, told, NO_MASK, chunk, span)
        share(tiles, -(-n // chunk), seconds / FASTER)
        if told.any():
            far = np.flatnonzero(told)
            few = np.empty((len(far), phi.features), out.dtype)
            by_floats(
                x.reshape(n, dim)[far], given[far] if given.size else given, few, len(far), seconds / n * len(far)
            )
            out.reshape(n, phi.features)[far] = few
    else:
        by_floats(x, given, out, n, seconds)
    return narrow(out, x.dtype, held=False)  # infinite where 16 bits cannot say it
