"""Cotangents of keys and values by Numba: a walk that reads those of their summary."""

import numpy as np

from kernattn._arrays.namespaces import Array, without_flags
from kernattn._maps.spec import MapSpec
from kernattn._sums.cotangents import MapCotangent, sum_onto
from kernattn._sums.peaked import PeakedSum, finite
from kernattn.ops._numba.tiles.layout import accumulation, narrow
from kernattn.ops.key_state_vjp import reference
from kernattn.ops.key_state_vjp.normalised import lowered, raised
from kernattn.ops.key_state_vjp.walks import keys, loops_take, walk_tokens
from kernattn.ops.recast import narrow_cotangents, widen


def key_state_vjp(
    k: Array, v: Array, k_spec: MapSpec, key_mask: Array | None, sums: PeakedSum, learn: bool
) -> tuple[MapCotangent, Array]:
    """Leave maps that the loops do not take, and in float64 what is far from ordinary, to array operations."""
    dtype, walk = accumulation(v), None
    if loops_take(k_spec):
        rows, row_spec = lowered(k, k_spec)
        side, lead = keys(rows, v, row_spec, key_mask, dtype), sums.s.shape[:-2]
        start = PeakedSum(sums.s, sums.z, -finite(np, sums.peak))
        walk = walk_tokens(None, side, lead, lead, start, wants=True, learn=learn and not k_spec.normalised)
        dtype = np.dtype(np.float64)
    if walk is None:
        given = widen(dtype, k, v, k_spec, key_mask, sums, learn)
        dk, dv = without_flags(reference.key_state_vjp)(*given)
        return narrow_cotangents(dk, k), narrow(dv, v.dtype)
    assert walk.read is not None
    dk = raised(k, k_spec, rows, walk.cotangent(rows, row_spec), learn)
    return dk, narrow(sum_onto(np, walk.read, v.shape), v.dtype)
