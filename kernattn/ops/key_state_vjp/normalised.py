"""Keys of a map that is normalised, as walks take them: the logs of their features stand for rows.

With l the logs, sum_a e^(l_a) = 1, and c their cotangents, those of the logs before they were normalised are
c_a - e^(l_a) sum_b c_b.
"""

from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array, without_flags
from kernattn._maps.spec import MapSpec
from kernattn._sums.cotangents import MapCotangent
from kernattn.ops._numba.tiles.layout import accumulation, narrow
from kernattn.ops.features.normalised import normalised_logs
from kernattn.ops.features_vjp.reference import of_logs
from kernattn.ops.recast import widen


@without_flags
def lowered(k: Array, spec: MapSpec) -> tuple[Array, MapSpec]:
    """Return keys (..., n, d) beside their map, or the logs (..., n, M) of their features beside the map of these."""
    if not spec.normalised:
        return k, spec
    (x,) = widen(accumulation(k), k)
    return normalised_logs(x, spec, x.dtype), MapSpec("exp", amplitude=spec.amplitude)


@without_flags
def raised(
    k: Array, spec: MapSpec, logs: Array, found: MapCotangent, learn: bool, dtype: np.dtype[Any] | None = None
) -> MapCotangent:
    """Return the cotangents of keys and of their map's numbers from those of `lowered` logs, which are used up.

    Those of keys are in their dtype, or in one that is asked for.
    """
    if not spec.normalised:
        return found
    (x,), g = widen(logs.dtype, k), found.x
    alive = np.any(g, axis=-1)
    if not alive.all():
        logs[~alive] = -np.inf
    lost = np.exp(logs, out=logs)
    lost *= (g @ np.ones(g.shape[-1], g.dtype))[..., None]  # a sum by BLAS, in a fifth of the time
    dx, omega, offset, _ = of_logs(x, spec, np.subtract(g, lost, out=lost), learn)
    return MapCotangent(narrow(dx, k.dtype if dtype is None else dtype), omega, None if spec.offset is None else offset)
