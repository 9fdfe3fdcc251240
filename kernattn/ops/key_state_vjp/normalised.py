"""Keys of a map that is normalised, as walks take them: the logs of their features stand for rows.

With l the logs, sum_a e^(l_a) = 1, and c their cotangents, those of the logs before they were normalised are
c_a - e^(l_a) sum_b c_b.
"""

import numpy as np

from kernattn._arrays.namespaces import Array, without_flags
from kernattn._maps.kinds import KINDS
from kernattn._maps.spec import MapSpec
from kernattn._sums.cotangents import MapCotangent
from kernattn._sums.row_scale import log_sum
from kernattn.ops._numba.tiles.layout import accumulation, narrow
from kernattn.ops.features_vjp.reference import of_shares
from kernattn.ops.recast import widen


@without_flags
def lowered(k: Array, spec: MapSpec) -> tuple[Array, MapSpec]:
    """Return keys (..., n, d) beside their map, or the logs (..., n, M) of their features beside the map of these."""
    if not spec.normalised:
        return k, spec
    (x,) = widen(accumulation(k), k)
    logs = KINDS[spec.kind].formula(np, x @ np.asarray(spec.omega).astype(x.dtype, copy=False).T)
    if spec.offset is not None:
        logs = logs + spec.offset.astype(x.dtype, copy=False)
    return logs - log_sum(np, logs), MapSpec("exp", amplitude=spec.amplitude)


@without_flags
def raised(k: Array, spec: MapSpec, logs: Array, found: MapCotangent, learn: bool) -> MapCotangent:
    """Return the cotangents of keys and of their map's numbers from those of what `lowered` returned."""
    if not spec.normalised:
        return found
    (x,), g = widen(logs.dtype, k), found.x
    alive = np.any(g != 0, axis=-1, keepdims=True)
    x, shares = np.where(alive, x, 0), np.exp(np.where(alive, logs, -np.inf))
    g = g - shares * np.sum(g, axis=-1, keepdims=True)
    du = of_shares(x, g, spec)
    dx = narrow(du @ np.asarray(spec.omega).astype(x.dtype, copy=False), k.dtype)
    if not learn:
        return MapCotangent(dx)
    x, g, du = (y.reshape(-1, y.shape[-1]) for y in (x, g, du))
    return MapCotangent(dx, du.T @ x, None if spec.offset is None else g.sum(axis=0))
