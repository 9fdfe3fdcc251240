"""The summary of keys by Numba: the recurrence of causal attention without its queries."""

from kernattn._arrays.namespaces import Array
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.peaked import PeakedSum
from kernattn.ops._numba.tiles.layout import accumulation
from kernattn.ops.features.sides import keys
from kernattn.ops.key_state.recurrence import sum_keys

CHUNK = 64


def key_state(k: Array | ScaledFeatures, v: Array, k_spec: MapSpec | None, key_mask: Array | None) -> PeakedSum:
    return sum_keys(keys(k, k_spec, accumulation(v)), v, key_mask, min(CHUNK, v.shape[-2]))
