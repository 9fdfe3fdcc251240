r"""Cotangents of keys and values in array-API.

With vhat = [v, 1] and R_a the cotangent of [S, z]_a, the log of feature a has the cotangent phi_a(k) R_a.vhat, and v
has sum_a phi_a(k) R_a without its last column.
"""

from types import ModuleType

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace, zero_masked
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.cotangents import MapCotangent, sum_onto, weight, with_column
from kernattn._sums.peaked import PeakedSum, finite
from kernattn.ops.features.reference import scaled
from kernattn.ops.features_vjp.reference import pull_back


def key_state_vjp(
    k: Array, v: Array, k_spec: MapSpec, key_mask: Array | None, sums: PeakedSum, learn: bool
) -> tuple[MapCotangent, Array]:
    """Return the cotangents of keys and values."""
    xp = namespace(k=k)
    if key_mask is None:
        key_mask = xp.zeros_like(v[..., 0]) == 0
    k, keys, values = admit_keys(xp, k, v, k_spec, key_mask)
    f, dv = pull_summary(xp, keys, values, key_mask, sums)
    return onto_keys(xp, k, k_spec, f, learn), xp.astype(sum_onto(xp, dv, tuple(v.shape)), v.dtype, copy=False)


def admit_keys(xp: ModuleType, k: Array, v: Array, k_spec: MapSpec, mask: Array) -> tuple[Array, ScaledFeatures, Array]:
    """Return keys, their features, and values in the accumulation dtype; what the mask leaves out is 0."""
    some = sum_onto(xp, xp.astype(mask, xp.float32), tuple(k.shape[:-1])) > 0
    k, v = zero_masked(k, some), xp.astype(v, accumulation_dtype(xp, v), copy=False)
    return k, scaled(k, k_spec), zero_masked(v, mask)


def pull_summary(xp: ModuleType, keys: ScaledFeatures, v: Array, mask: Array, sums: PeakedSum) -> tuple[Array, Array]:
    """Return the cotangents of the keys' features, (..., n, M), and of the values; see `peaked.summarise`.

    Whatever stands in a key that is masked, or whose sums have no cotangents, these are 0.
    """
    log_scale = xp.where(mask[..., None], keys.log_scale - finite(xp, sums.peak)[..., None, :], -xp.inf)
    factor = weight(xp, log_scale)
    both, of_sums = xp.concat([v, xp.ones_like(v[..., :1])], axis=-1), with_column(xp, sums.s, sums.z)
    f = factor * xp.matmul(both, xp.matrix_transpose(of_sums))
    has_cotangent = mask[..., None] & xp.any(of_sums != 0, axis=(-2, -1), keepdims=True)
    cotangents = f, xp.matmul(keys.values * factor, sums.s)
    of_keys, dv = (xp.where(has_cotangent, x, xp.zeros_like(x)) for x in cotangents)
    return of_keys, dv


def onto_keys(xp: ModuleType, k: Array, k_spec: MapSpec, f: Array, learn: bool) -> MapCotangent:
    """Return the cotangents of keys from those of their features, whose leading axes may be more."""
    return pull_back(k, k_spec, sum_onto(xp, f, (*k.shape[:-1], f.shape[-1])), True, learn)
