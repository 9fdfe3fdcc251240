"""The summary of keys in array-API."""

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.peaked import PeakedSum, summarise
from kernattn.ops.features.reference import features_of_side


def key_state(k: Array | ScaledFeatures, v: Array, k_spec: MapSpec | None, key_mask: Array | None) -> PeakedSum:
    """Return the sum over all keys that key_mask admits."""
    xp = namespace(v=v)
    keys = features_of_side(k, k_spec, key_mask)
    return summarise(xp, keys, xp.astype(v, accumulation_dtype(xp, v), copy=False), key_mask)
