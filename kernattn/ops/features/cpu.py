"""Features by Numba: projection and nonlinearity of a block of rows while it lies in cache."""

from functools import partial
from math import prod

from kernattn._arrays.namespaces import Array
from kernattn._maps.spec import MapSpec
from kernattn._runtime.parallel import share
from kernattn.ops._numba.tiles.layout import NO_MASK, accumulation, has_bits, narrow, room, rows, seconds_of, written
from kernattn.ops._numba.tiles.packing import pack_map
from kernattn.ops.features.crossover import FASTER_ABOVE, fast
from kernattn.ops.features.loops import write_features
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
    own, given, into = rows(x, dtype), given_scales(x, spec, dtype), written(out, dtype)
    span = TILE_BYTES // (ROWS * dtype.itemsize)
    blocks = partial(write_features, phi.arrays, own, given, n, into, NO_MASK, chunk, span)
    seconds = n * seconds_of(2.0 * phi.frequencies * dim * phi.projects, phi.features, dtype.itemsize)
    share(blocks, -(-n // chunk), seconds)
    return narrow(out, x.dtype, held=False)  # infinite where 16 bits cannot say it
