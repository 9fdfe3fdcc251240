"""Cotangents of keys and values by Numba: a walk that reads those of their summary."""

from __future__ import annotations

import numpy as np

from kernattn._array import Array, without_flags
from kernattn.ops._numba.layout import accumulation, narrowed
from kernattn.ops.cotangents import MapCotangent, onto
from kernattn.ops.key_state_vjp import reference
from kernattn.ops.key_state_vjp.walks import fused, keys, walked
from kernattn.ops.peaked import PeakedSum, finite
from kernattn.ops.spec import MapSpec

__all__ = ["key_state_vjp"]


def key_state_vjp(
    k: Array, v: Array, k_spec: MapSpec, key_mask: Array | None, sums: PeakedSum, learn: bool
) -> tuple[MapCotangent, Array]:
    """Return the cotangents of keys and values.

    What is learnt, and what is far from ordinary, is left to array operations.
    """
    found = None
    if not learn and fused(k_spec):
        side, lead = keys(k, v, k_spec, key_mask, accumulation(v)), sums.s.shape[:-2]
        found = walked(None, side, lead, lead, PeakedSum(sums.s, sums.z, -finite(np, sums.peak)), wants=True)
    if found is None:
        return without_flags(reference.key_state_vjp)(k, v, k_spec, key_mask, sums, learn)
    dk, dv = (narrowed(onto(np, dx, x.shape), x.dtype) for dx, x in ((found.dx, k), (found.read, v)))
    return MapCotangent(dk), dv
