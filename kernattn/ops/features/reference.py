"""Features in array-API: the formulas of MapSpec as written."""

from math import log

from kernattn._arrays.namespaces import Array, Float64, accumulation_dtype, constant, namespace, zero_masked
from kernattn._maps.chains import Chains
from kernattn._maps.kinds import KINDS
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.peaked import finite
from kernattn._sums.row_scale import row_scale
from kernattn._sums.units import LOW, balance, multiply_out, restore, scaled_down
from kernattn.ops.features.crossover import FASTER_ABOVE, fast
from kernattn.ops.hadamard.reference import hadamard


def features(x: Array, spec: MapSpec) -> Array:
    """Return phi (..., n, M) in the dtype of x."""
    return multiply_out(scaled(x, spec), x)


def features_of_side(x: Array | ScaledFeatures, spec: MapSpec | None, mask: Array | None = None) -> ScaledFeatures:
    """Return the features of x (..., n, d) that a mask shows, or x where it is features already and spec None."""
    return x if spec is None else scaled(zero_masked(x, mask), spec)


def relative(x: Array | ScaledFeatures, spec: MapSpec | None, scale: bool) -> tuple[ScaledFeatures, Array]:
    """Return the features of queries without what is common to a row, and the logarithm of that (..., n).

    It cancels in outputs but would cost digits in sums of logs. Without `scale` it may lack the row's own log scale.
    """
    values, log_scale = x if spec is None else scaled(x, spec.unscaled)
    xp = namespace(values=values)
    own = finite(xp, xp.max(log_scale, axis=-1, keepdims=True))
    queries = ScaledFeatures(values, log_scale - own)
    if scale and spec is not None:
        own = own + row_scale(xp, xp.astype(x, own.dtype, copy=False), spec)
    return queries, own[..., 0]


def project(x: Array, omega: Float64 | Chains) -> Array:
    """Return Omega x, (..., n, D), of rows x (..., n, d), in the accumulation dtype."""
    xp, chains = namespace(x=x), fast(omega, FASTER_ABOVE["reference"])
    dtype = accumulation_dtype(xp, x)
    x = xp.astype(x, dtype, copy=False)
    return xp.matmul(x, constant(xp, omega.T, dtype, x)) if chains is None else hadamard(x, chains)


def arguments(x: Array, spec: MapSpec) -> Array:
    """Return the nonlinearity's argument (..., n, D): projections of x (..., n, d), plus phases if the map has any."""
    xp = namespace(x=x)
    rows, octaves = scaled_down(xp, xp.astype(x, accumulation_dtype(xp, x), copy=False))
    u = restore(xp, rows if spec.omega is None else project(rows, spec.omega), octaves)
    if KINDS[spec.kind].offset == "phase" and spec.offset is not None:
        u = u + constant(xp, spec.offset, u.dtype, x)
    return u


def scaled(x: Array, spec: MapSpec) -> ScaledFeatures:
    """Return the features of x (..., n, d) with their log scale kept apart, in the accumulation dtype."""
    spec.check_dtype("x", x)
    xp = namespace(x=x)
    dtype = accumulation_dtype(xp, x)
    x = xp.astype(x, dtype, copy=False)
    kind, row = KINDS[spec.kind], row_scale(xp, x, spec)
    if kind.homogeneous:
        rows, octaves = scaled_down(xp, x, tiny=True)
        u = rows if spec.omega is None else project(rows, spec.omega)  # (..., n, D)
        row = row + octaves * log(2)
    else:
        u = arguments(x, spec)
    if kind.exponential_tail:
        top = xp.max(u, axis=-1, keepdims=True)
        row = xp.where(top < LOW, top, xp.zeros_like(top))
        u = u - row
    u = kind.formula(xp, u)
    if kind.scale == "none":
        u, row = balance(ScaledFeatures(u, row))
    if not kind.per_feature:
        return ScaledFeatures(u * spec.amplitude, row)
    if spec.offset is not None:
        u = u + constant(xp, spec.offset, dtype, x)
    return ScaledFeatures(xp.ones_like(row), u + (row + constant(xp, spec.log_amplitude, dtype, x)))
