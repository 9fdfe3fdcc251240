r"""Cotangents of queries against a summary of keys, in array-API.

With P_a = phi_a(q) / Z and ghat = [g, -g.o], the log of feature a has the cotangent P_a ghat.[S, z]_a, and [S, z]_a has
sum_i P_a ghat, in units of the largest P_a.
"""

from types import ModuleType

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace, sign
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.cotangents import MapCotangent, onto_sums, sum_onto, weight, with_column
from kernattn._sums.peaked import Normaliser, PeakedSum, finite
from kernattn.ops.attend.reference import attend
from kernattn.ops.features.reference import relative
from kernattn.ops.features_vjp.reference import pull_back


def attend_vjp(
    state: PeakedSum, q: Array, q_spec: MapSpec, out: Array, normaliser: Normaliser, g: Array, learn: bool
) -> tuple[PeakedSum, MapCotangent]:
    """Return the cotangents of the sums, and of the queries."""
    xp = namespace(q=q)
    if out.dtype != state.s.dtype:  # rounded: g.v and g.o nearly cancel
        out, _ = attend(state, q, q_spec, state.s.dtype, False)
    q, weights, ghat = over_normalisers(xp, q, q_spec, out, normaliser, g)
    f, sums = pull_reading(xp, weights, ghat, state)
    return onto_sums(xp, sums, state), pull_back(q, q_spec, sum_onto(xp, f, (*q.shape[:-1], f.shape[-1])), False, learn)


def over_normalisers(
    xp: ModuleType, q: Array, q_spec: MapSpec, out: Array, normaliser: Normaliser, g: Array
) -> tuple[Array, ScaledFeatures, Array]:
    """Return the queries, their features over |Z|, and ghat (..., n, e + 1) with the sign of Z.

    The normaliser is that of a spec without log scales of rows. A row without one, or without a cotangent, is nothing:
    whatever stands there.
    """
    dtype = accumulation_dtype(xp, q)
    out, g = (xp.astype(x, dtype, copy=False) for x in (out, g))
    alive = xp.any(g != 0, axis=-1, keepdims=True) & (normaliser.z != 0)[..., None]  # (..., n, 1)
    out = xp.where(alive, out, xp.zeros_like(out))
    g = xp.where(alive, g, xp.zeros_like(g))
    asked = sum_onto(xp, xp.astype(alive, dtype), (*q.shape[:-1], 1)) > 0
    q = xp.where(asked, q, xp.zeros_like(q))
    (values, log_scale), own = relative(q, q_spec, False)
    peak, z = (xp.where(alive[..., 0], x, xp.ones_like(x)) for x in normaliser)
    less = (peak - own) + xp.log(xp.abs(z))
    log_scale = xp.where(alive, log_scale - less[..., None], -xp.inf)
    ghat = with_column(xp, g, -xp.sum(g * out, axis=-1)) * sign(xp, z)[..., None]
    return q, ScaledFeatures(values, log_scale), ghat


def pull_reading(
    xp: ModuleType, queries: ScaledFeatures, ghat: Array, keys: PeakedSum, visible: Array | None = None
) -> tuple[Array, PeakedSum]:
    """Return the cotangents of the queries' features, (..., n, M), and of the sums, per reader; see `peaked.read`."""
    log_scale = queries.log_scale
    if visible is not None:
        log_scale = xp.where(visible[..., None], log_scale, -xp.inf)
        ghat = xp.where(visible[..., None], ghat, xp.zeros_like(ghat))
    factor = weight(xp, log_scale + keys.peak[..., None, :])
    f = factor * xp.matmul(ghat, xp.matrix_transpose(with_column(xp, keys.s, keys.z)))
    f = xp.where(log_scale == -xp.inf, xp.zeros_like(f), f)
    peak = -xp.max(log_scale, axis=-2)
    weights = queries.values * xp.exp(log_scale + finite(xp, peak)[..., None, :])
    sums = xp.matmul(xp.matrix_transpose(weights), ghat)  # (..., M, e + 1)
    return f, PeakedSum(sums[..., :-1], sums[..., -1], peak)
