r"""Cotangents of queries against a summary of keys, in array-API.

With P_a = phi_a(q) / Z and ghat = [g, -g.o], the log of feature a has the cotangent P_a ghat.[S, z]_a, and [S, z]_a has
sum_i P_a ghat. P stands in the unit of the sums, in which it is at most 1 for positive features.
"""

from __future__ import annotations

from types import ModuleType

from kernattn._array import Array, accumulation_dtype, namespace
from kernattn.ops.cotangents import MapCotangent, beside, onto
from kernattn.ops.features.reference import relative
from kernattn.ops.features_vjp.reference import pulled
from kernattn.ops.peaked import LogNormaliser, PeakedSum
from kernattn.ops.spec import MapSpec, ScaledFeatures

__all__ = ["attend_vjp", "onto_sums", "read_back", "readers"]


def attend_vjp(
    state: PeakedSum, q: Array, q_spec: MapSpec, out: Array, normaliser: LogNormaliser, g: Array, learn: bool
) -> tuple[PeakedSum, MapCotangent]:
    """Return the cotangents of the sums, and of the queries."""
    xp = namespace(q=q)
    q, weights, ghat = readers(xp, q, q_spec, out, normaliser, g)
    f, sums = read_back(xp, weights, ghat, state)
    return onto_sums(xp, sums, state), pulled(q, q_spec, onto(xp, f, (*q.shape[:-1], f.shape[-1])), False, learn)


def readers(
    xp: ModuleType, q: Array, q_spec: MapSpec, out: Array, normaliser: LogNormaliser, g: Array
) -> tuple[Array, ScaledFeatures, Array]:
    """Return the queries, their features over |Z|, and ghat (..., n, e + 1) with the sign of Z.

    A row without a normaliser, or without a cotangent, is nothing: whatever stands there.
    """
    dtype = accumulation_dtype(xp, q)
    out, g = (xp.astype(x, dtype, copy=False) for x in (out, g))
    alive = xp.any(g != 0, axis=-1, keepdims=True) & (normaliser.sign != 0)[..., None]  # (..., n, 1)
    out = xp.where(alive, out, xp.zeros_like(out))
    g = xp.where(alive, g, xp.zeros_like(g))
    asked = onto(xp, xp.astype(alive, dtype), (*q.shape[:-1], 1)) > 0
    q = xp.where(asked, q, xp.zeros_like(q))
    (values, log_scale), own = relative(q, q_spec, True)
    less = own - xp.where(alive[..., 0], normaliser.log, xp.zeros_like(normaliser.log))
    log_scale = xp.where(alive, log_scale + less[..., None], -xp.inf)
    ghat = beside(xp, g, -xp.sum(g * out, axis=-1)) * xp.where(alive, normaliser.sign[..., None], 0.0)
    return q, ScaledFeatures(values, log_scale), ghat


def read_back(
    xp: ModuleType, queries: ScaledFeatures, ghat: Array, keys: PeakedSum, visible: Array | None = None
) -> tuple[Array, PeakedSum]:
    """Return the cotangents of the queries' features, (..., n, M), and of the sums; see `peaked.read`."""
    log_scale = queries.log_scale + keys.peak[..., None, :]
    if visible is not None:
        log_scale = xp.where(visible[..., None], log_scale, -xp.inf)
        ghat = xp.where(visible[..., None], ghat, xp.zeros_like(ghat))
    factor = xp.exp(log_scale)
    f = factor * xp.matmul(ghat, xp.matrix_transpose(beside(xp, keys.s, keys.z)))
    sums = xp.matmul(xp.matrix_transpose(queries.values * factor), ghat)  # (..., M, e + 1)
    return f, PeakedSum(sums[..., :-1], sums[..., -1], keys.peak)


def onto_sums(xp: ModuleType, cotangent: PeakedSum, sums: PeakedSum) -> PeakedSum:
    """Return cotangents of sums summed to their shape; that of a peak is 0."""
    s, z = (onto(xp, x, tuple(like.shape)) for x, like in zip(cotangent[:2], sums[:2], strict=True))
    return PeakedSum(s, z, xp.zeros_like(sums.peak))
