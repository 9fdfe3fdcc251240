"""Features in CUDA: a tile of rows a block, projected on tensor cores where the dtype allows, written once."""

import math

import numpy as np

from kernattn._arrays.namespaces import Array, dtype_name
from kernattn._maps.spec import MapSpec
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.maps import FB, MapCode, map_arguments, map_bytes, map_code
from kernattn.ops._cuda.sizes import ceil_div, pieces, row_length
from kernattn.ops.features.crossover import FASTER_ABOVE, fast
from kernattn.ops.features.reference import features as composed
from kernattn.ops.hadamard.gpu import chain_features


def launch(rows: int, frequencies: int, code: MapCode, limits: runtime.Limits) -> runtime.Launch:
    """Return the launch for so many rows and a map of `frequencies`."""
    tiles = ceil_div(rows, code.rows)
    blocks = ceil_div(frequencies, FB)
    spread = min(blocks, max(1, ceil_div(4 * limits.multiprocessors, tiles)))
    shared_bytes = map_bytes(code, 1) + pieces(
        (code.rows * row_length(code.input, FB), code.input), (code.rows, code.accumulator)
    )
    return runtime.Launch(code.defines, (tiles, spread), code.threads, shared_bytes)


def features(x: Array, spec: MapSpec) -> Array:
    if spec.scales_apart:  # the kernel has no such log scale
        return composed(x, spec)
    chains = fast(spec.omega, FASTER_ABOVE["gpu"])
    if chains is not None:
        return chain_features(x, chains, spec.unprojected)
    x = cupy.ascontiguousarray(x)
    rows, d = math.prod(x.shape[:-1]), x.shape[-1]
    device = runtime.limits()
    code = map_code(dtype_name(x), spec, spec.per_feature, d, device)
    phi = cupy.empty((*x.shape[:-1], spec.num_features_of(d)), dtype=x.dtype)
    if phi.size == 0:
        return phi
    arguments = map_arguments(spec, code, d)
    how = launch(rows, int(arguments[-2]), code, device)
    how.start("features", "features", x, phi, *arguments, np.int64(rows))
    return phi
