"""Features in array-API: the formulas of MapSpec as written."""

from __future__ import annotations

from kernattn._array import Array, Float64, accumulation_dtype, constant, namespace
from kernattn.ops.chains import Chains
from kernattn.ops.features.chains import FASTER_ABOVE, fast
from kernattn.ops.hadamard.reference import hadamard
from kernattn.ops.kinds import KINDS
from kernattn.ops.row_scale import row_scale
from kernattn.ops.spec import MapSpec, ScaledFeatures
from kernattn.ops.units import LOW, balanced, multiplied, nearer, restored

__all__ = ["computed", "features", "projected", "scaled"]


def features(x: Array, spec: MapSpec) -> Array:
    """Return phi (..., n, M) in the dtype of x."""
    return multiplied(scaled(x, spec), x)


def computed(x: Array | ScaledFeatures, spec: MapSpec | None) -> ScaledFeatures:
    """Return the features of x (..., n, d), or x where it is features already and spec None."""
    return x if spec is None else scaled(x, spec)


def projected(x: Array, omega: Float64 | Chains) -> Array:
    """Return Omega x, (..., n, D), of rows x (..., n, d), in the accumulation dtype."""
    xp, chains = namespace(x=x), fast(omega, FASTER_ABOVE["reference"])
    dtype = accumulation_dtype(xp, x)
    x = xp.astype(x, dtype, copy=False)
    return xp.matmul(x, constant(xp, omega.T, dtype, x)) if chains is None else hadamard(x, chains)


def scaled(x: Array, spec: MapSpec) -> ScaledFeatures:
    """Return the features of x (..., n, d) with their log scale kept apart, in the accumulation dtype."""
    xp = namespace(x=x)
    dtype = accumulation_dtype(xp, x)
    x = xp.astype(x, dtype, copy=False)
    rows, octaves = nearer(xp, x)
    u = restored(xp, rows if spec.omega is None else projected(rows, spec.omega), octaves)  # (..., n, D)
    row = row_scale(xp, x, spec)
    kind = KINDS[spec.kind]
    offset = None if spec.offset is None else constant(xp, spec.offset, dtype, x)
    if kind.offset == "phase" and offset is not None:
        u = u + offset
    if kind.exponential_tail:
        top = xp.max(u, axis=-1, keepdims=True)
        row = xp.where(top < LOW, top, xp.zeros_like(top))
        u = u - row
    u = kind.formula(xp, u)
    if kind.scale == "none":
        u, row = balanced(ScaledFeatures(u, row))
    if not kind.per_feature:
        return ScaledFeatures(u * spec.amplitude, row)
    if offset is not None:
        u = u + offset
    return ScaledFeatures(xp.ones_like(row), u + (row + constant(xp, spec.log_amplitude, dtype, x)))
