r"""Sums of terms that span more orders of magnitude than a float: kept in units of e^peak, and merged.

One algebra serves every form of attention. Its element is a triple (s, z, peak): numerators s (..., r, e) and
normalisers z (..., r), both in units of exp(peak), peak (..., r) or (..., 1). The rows r are the M features for a
state that summarises keys, and the n queries for a part of an output. A sum of nothing is (0, 0, -inf).
"""

from __future__ import annotations

from math import log
from types import ModuleType
from typing import Any, NamedTuple

from kernattn._arrays.bridge import stop_gradient
from kernattn._arrays.namespaces import Array, dtype_name, largest, sign, zero_masked, zeros
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.checks import shown
from kernattn._sums.limits import ENDS
from kernattn.errors import DTypeError


class PeakedSum(NamedTuple):
    """Numerators and normalisers in units of exp(peak)."""

    s: Array
    z: Array
    peak: Array


def no_item(state: tuple[Any, ...], index: Any) -> tuple[Any, ...]:
    """Return a slice of the fields of a state; raise where one is asked for, which rather means a sequence of many."""
    if isinstance(index, slice):
        return tuple.__getitem__(state, index)
    fields = ", ".join(state._fields)  # type: ignore[attr-defined]
    raise DTypeError(
        f"a {type(state).__name__} has fields, {fields}, and no items: ka.take_states(state, {shown(index)}) takes a "
        f"sequence of a batch; got state[{shown(index)}]"
    )


class LinearState(NamedTuple):
    r"""What linear attention remembers of the keys and values that it has seen.

    :math:`S_a = \sum_j \phi_a(k_j) e^{-peak_a} v_j^T` and :math:`z_a = \sum_j \phi_a(k_j) e^{-peak_a}`, where
    :math:`peak_a` is the largest log scale seen for feature :math:`a`, or the log of a power of two
    at most one octave below it; -inf, with zeros, when nothing was seen.
    """

    s: Array  # (..., M, e)
    z: Array  # (..., M)
    peak: Array  # (..., M) for log scales per feature, (..., 1) for log scales per row
    fingerprint: int  # of the map that made it

    def __getitem__(self, index: Any) -> Any:
        return no_item(self, index)


class Normaliser(NamedTuple):
    """Normalisers of rows as Z = z e^peak: a logarithm of Z would lose digits in proportion to its size.

    Of compiled loops the peak is the log of a power of two, as a state's is. Of array operations it is rounded, and z
    makes up for that: Z = z e^(own + (peak - own)), where `own` is what the logs of the query's features had taken off.
    """

    peak: Array  # (..., n)
    z: Array  # (..., n), 0 where nothing was seen


class LogNormaliser(NamedTuple):
    r"""Normalisers of rows as :math:`Z = sign \cdot e^{log}`: no norm of the inputs overflows or underflows them."""

    log: Array  # (..., n), -inf where Z is 0
    sign: Array  # (..., n), -1, 0 or 1


def finite(xp: ModuleType, peak: Array) -> Array:
    """Return the peaks with 0 in place of -inf, so that -inf minus a peak stays -inf and never becomes NaN."""
    return xp.where(xp.isinf(peak), xp.zeros_like(peak), peak)


def lowered_values(xp: ModuleType, v: Array, axis: Any) -> tuple[Array, Array, Array]:
    """Return v, by a power of two lower where it is huge along `axis`, that power, and by how much peaks rise."""
    ends = ENDS[dtype_name(v)]
    far = xp.any(xp.isfinite(v) & (xp.abs(v) >= ends.huge), axis=axis, keepdims=True)
    none = xp.zeros_like(xp.max(v, axis=axis, keepdims=True))
    factor = xp.where(far, 2.0**-ends.lift, none + 1)
    return v * factor, factor, xp.where(far, ends.lift * log(2), none)


def empty(
    xp: ModuleType, lead: tuple[int, ...], rows: int, peaks: int, e: int, dtype: object, beside: Array
) -> PeakedSum:
    """Return the sum of nothing."""
    return PeakedSum(
        zeros(xp, (*lead, rows, e), dtype, beside),
        zeros(xp, (*lead, rows), dtype, beside),
        zeros(xp, (*lead, peaks), dtype, beside) - xp.inf,
    )


def merge(xp: ModuleType, a: PeakedSum, b: PeakedSum) -> PeakedSum:
    """Return the sum of both: associative, with the empty sum as its neutral element."""
    peak = xp.maximum(a.peak, b.peak)
    wa, wb = (_factor_to_unit(xp, part, finite(xp, peak)) for part in (a, b))  # (..., r)
    return PeakedSum(wa[..., None] * a.s + wb[..., None] * b.s, wa * a.z + wb * b.z, peak)


def _factor_to_unit(xp: ModuleType, part: PeakedSum, unit: Array) -> Array:
    """Return e^(peak - unit), and 0 in place of factors that would leave a normaliser few digits or none."""
    factor = xp.exp(part.peak - unit)
    faint = xp.abs(factor * part.z) < ENDS[dtype_name(part.z)].faint
    return xp.where((factor < 1) & (part.z != 0) & faint, 0.0, factor)


def summarise(xp: ModuleType, keys: ScaledFeatures, v: Array, mask: Array | None) -> PeakedSum:
    """Return the sum over the keys that `mask` (..., n) admits, a row per feature. Its peak has no gradient."""
    values, log_scale = keys
    if mask is not None:
        log_scale = xp.where(mask[..., None], log_scale, -xp.inf)
        values, v = zero_masked(values, mask), zero_masked(v, mask)
    peak = stop_gradient(xp.max(log_scale, axis=-2, keepdims=True))  # (..., 1, M | 1)
    weights = values * xp.exp(log_scale - finite(xp, peak))  # (..., n, M)
    v, factor, rise = lowered_values(xp, v, (-2, -1))
    s = xp.matmul(xp.matrix_transpose(weights), v)  # (..., M, e)
    z, peak = xp.sum(weights, axis=-2) * factor[..., 0], peak[..., 0, :] + rise[..., 0]
    lead = tuple(s.shape[:-2])
    return PeakedSum(s, xp.broadcast_to(z, (*lead, z.shape[-1])), xp.broadcast_to(peak, (*lead, peak.shape[-1])))


def read(xp: ModuleType, queries: ScaledFeatures, keys: PeakedSum, visible: Array | None = None) -> PeakedSum:
    """Return each query's sum over a summary of keys, a row per query; a query not `visible` (..., n) sees nothing."""
    log_scale = queries.log_scale + keys.peak[..., None, :]  # (..., n, M | 1)
    if visible is not None:
        log_scale = xp.where(visible[..., None], log_scale, -xp.inf)
    peak = xp.max(log_scale, axis=-1, keepdims=True)  # (..., n, 1)
    weights = queries.values * xp.exp(log_scale - finite(xp, peak))  # (..., n, M)
    s = xp.matmul(weights, keys.s)  # (..., n, e)
    z = xp.matmul(weights, keys.z[..., None])[..., 0]
    if visible is not None:  # no NaN either
        s, z = xp.where(visible[..., None], s, xp.zeros_like(s)), xp.where(visible, z, xp.zeros_like(z))
    return PeakedSum(s, z, xp.broadcast_to(peak[..., 0], z.shape))


def quotient(xp: ModuleType, total: PeakedSum, dtype: Any) -> Array:
    """Return s / z in a dtype, held to what it can say; a row whose normaliser is exactly 0 is 0."""
    nothing, own = (total.z == 0)[..., None], xp.finfo(total.s.dtype)
    z = xp.where(nothing, xp.ones_like(total.z[..., None]), total.z[..., None])
    most = float(own.max) * (1 - 4 * float(own.eps))
    limit = min(most, largest(dtype))
    limit = limit * stop_gradient(xp.minimum(xp.abs(z), xp.full_like(z, most / limit)))  # whose tangents are huge
    s = xp.where(xp.isinf(total.s), total.s, xp.minimum(xp.maximum(total.s, -limit), limit))
    return xp.astype(xp.where(nothing, xp.zeros_like(s), s / z), dtype, copy=False)


def rounded(xp: ModuleType, out: Array, dtype: Any) -> Array:
    """Return outputs in a dtype, held to what it can say as quotients are; infinities stay."""
    if out.dtype == dtype:
        return out
    most = largest(dtype)  # and no clip of what is rounded: array_api_compat refuses bfloat16
    return xp.astype(xp.where(xp.isinf(out), out, xp.clip(out, -most, most)), dtype)


def before_rounding(xp: ModuleType, out: Array, dtype: Any) -> Array:
    """Return outputs before they are rounded to a dtype, for a pullback: no columns where that loses nothing."""
    return zeros(xp, (*out.shape[:-1], 0), out.dtype, out) if out.dtype == dtype else out


def row_normaliser(xp: ModuleType, z: Array, peak: Array, own: Array) -> Normaliser:
    """Return the normalisers z e^(own + peak) of queries (..., n), which had `own` taken off their logs."""
    rise = finite(xp, peak)
    peak = own + rise
    lost = rise - (peak - own)
    return Normaliser(peak, z * xp.exp(xp.where(xp.abs(lost) < 1, lost, xp.zeros_like(lost))))


def log_normaliser(xp: ModuleType, normaliser: Normaliser) -> LogNormaliser:
    """Return the logarithms and signs of normalisers."""
    nothing, size = normaliser.z == 0, xp.abs(normaliser.z)
    log = normaliser.peak + xp.log(xp.where(nothing, xp.ones_like(size), size))
    return LogNormaliser(xp.where(nothing, -xp.inf, log), sign(xp, normaliser.z))
