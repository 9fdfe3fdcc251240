"""Cotangents of keys and values in CUDA: a tile of keys a block, which reads the cotangents of their summary."""

import math

from kernattn._arrays.namespaces import Array, dtype_name, namespace
from kernattn._maps.spec import MapSpec
from kernattn._sums.cotangents import MapCotangent, sum_onto
from kernattn._sums.peaked import PeakedSum, finite
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.axes import broadcast
from kernattn.ops._cuda.linear import side
from kernattn.ops._cuda.seen_keys import mask_of_seen_keys
from kernattn.ops.features_vjp.pulled import pulled_room, result_type
from kernattn.ops.key_state_vjp.back import Tokens, back_code, launch, read_back


def key_state_vjp(
    k: Array, v: Array, k_spec: MapSpec, key_mask: Array | None, sums: PeakedSum, learn: bool
) -> tuple[MapCotangent, Array]:
    device, dtype, xp = runtime.limits(), dtype_name(v), namespace(v=v)
    lead, (n, e) = tuple(sums.s.shape[:-2]), v.shape[-2:]
    keys, map_code = side(k, k_spec, dtype, device)
    result = result_type(v if k.shape[:-2] == lead else k, k_spec, lead, map_code.accumulator)
    code = back_code(map_code, k.shape[-1], dtype, e, result, True, device)
    how = launch(math.prod(lead), n, code, learn, device)
    rows = keys.rows.broadcast(lead)
    some = (cupy.any(sums.s != 0, axis=(-2, -1)) | cupy.any(sums.z != 0, axis=-1))[..., None]
    mask = mask_of_seen_keys(some.view(cupy.uint8), n, lead, key_mask)
    tokens = Tokens(rows, keys.arguments, broadcast(v, lead, 2), rows.scale, mask=mask)
    room = pulled_room(k, k_spec, lead, code.linear.map, result, how.grid[0], learn)
    read = cupy.empty((*lead, n, e), dtype=room.dx.dtype)
    read_back(how, tokens, sums._replace(peak=-finite(xp, sums.peak)), room, read)
    return room.cotangent(k, k_spec, True, learn), values_like(read, v)


def values_like(cotangent: Array, v: Array) -> Array:
    """Return cotangents of values, whose leading axes may be more, as those of v."""
    xp = namespace(v=v)
    return xp.astype(sum_onto(xp, cotangent, tuple(v.shape)), v.dtype, copy=False)
