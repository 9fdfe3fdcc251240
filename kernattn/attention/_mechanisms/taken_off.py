"""Exact weights on any plan, where sums of features over all keys lose those on the plan by subtraction."""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, accumulation_dtype, anywhere, constant, namespace, widest
from kernattn._maps.spec import ScaledFeatures
from kernattn._plans.parts import Part
from kernattn._plans.plan import Plan
from kernattn._sums.peaked import PeakedSum, empty, finite, merge, quotient, read, summarise
from kernattn.attention._lowering import computed_features, implementation
from kernattn.attention._mechanisms.widened import widened_once
from kernattn.attention._shapes import leading
from kernattn.attention._softmax import softmax_with_lse
from kernattn.features import FeatureMap
from kernattn.ops.block_softmax.parts_reference import Integers, Visit, blind_product, each_head, rows_of, sums_over
from kernattn.ops.causal import OP as CAUSAL


def taken_off(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    scale: float | None,
    plan: Plan,
    causal: bool,
    key_mask: Array | None,
    near_bias: Array | None,
    backend: str | None,
) -> Array:
    """Return the outputs; the sums of features and their difference are taken in float64."""
    xp, given = namespace(q=q), v.dtype
    q, k, v = widened_once(q, k, v)
    rows = [xp.astype(x, accumulation_dtype(xp, x), copy=False) for x in (q, k, v)]  # rounded once, at the end
    near, lse = softmax_with_lse(*rows, scale=scale, key_mask=key_mask, pattern=plan, backend=backend)
    del rows
    wide = widest(xp, v)
    q, k, v, near, lse = (xp.astype(x, wide, copy=False) for x in (q, k, v, near, lse))
    queries, keys = computed_features(phi, q, k)
    if causal:
        far = _sum_earlier(xp, queries, keys, v, key_mask, backend)
    else:
        far = read(xp, queries, summarise(xp, keys, v, key_mask))
    on = _sum_on_plan(xp, queries, keys, v, plan, key_mask)
    seen = xp.astype(lse != -xp.inf, wide)
    total = merge(xp, far, PeakedSum(-on.s, -on.z, on.peak))
    apart = _have_keys_apart(xp, q, k, plan, key_mask, causal)  # else the difference is rounding, however large
    total = PeakedSum(
        xp.where(apart[..., None], total.s, xp.zeros_like(total.s)),
        xp.where(apart, total.z, xp.zeros_like(total.z)),
        xp.where(apart, total.peak, -xp.inf),
    )
    if near_bias is not None:
        lse = xp.where(seen > 0, lse + xp.astype(near_bias, wide)[..., None], lse)
    return quotient(xp, merge(xp, total, PeakedSum(near * seen[..., None], seen, lse)), given)


def _have_keys_apart(xp: ModuleType, q: Array, k: Array, plan: Plan, mask: Array | None, causal: bool) -> Array:
    """Return which queries see keys that are not on the plan, (..., n) or (n,)."""
    one, other = (ScaledFeatures(xp.ones_like(x[..., :1]), xp.zeros_like(x[..., :1])) for x in (q, k))
    on = _sum_on_plan(xp, one, other, other.log_scale, plan, mask).z
    present = xp.ones_like(other.values[..., 0]) if mask is None else xp.astype(mask, q.dtype)
    if causal:
        return on < xp.cumulative_sum(present, axis=-1)[..., k.shape[-2] - q.shape[-2] :]
    return on < xp.sum(present, axis=-1, keepdims=True)


def _sum_earlier(
    xp: ModuleType, queries: ScaledFeatures, keys: ScaledFeatures, v: Array, mask: Array | None, backend: str | None
) -> PeakedSum:
    """Return sums by features over what stands at or before each query, a row per query."""
    n = max(x.shape[-2] for x in queries)
    ahead = v.shape[-2] - n
    before = None
    if ahead:
        head = None if mask is None else mask[..., :ahead]
        before = summarise(xp, ScaledFeatures(*(x[..., :ahead, :] for x in keys)), v[..., :ahead, :], head)
        keys = ScaledFeatures(*(x[..., ahead:, :] for x in keys))
        v, mask = v[..., ahead:, :], None if mask is None else mask[..., ahead:]
    run = implementation(CAUSAL, v, backend, queries, keys)
    out, state, _ = run(queries, keys, v, None, None, before, mask, None, True)
    return PeakedSum(out * state.z[..., None], state.z, state.peak)


def _sum_on_plan(
    xp: ModuleType, queries: ScaledFeatures, keys: ScaledFeatures, v: Array, plan: Plan, mask: Array | None
) -> PeakedSum:
    """Return sums by features over a plan, a row per query."""
    if len(plan.heads) == 1:
        return _sum_on_parts(xp, queries, keys, v, plan.heads[0], mask)
    sums = []
    for head, parts in enumerate(plan.heads):
        *rows, own = each_head(head, (3, 3, 3, 3, 3, 2), *queries, *keys, v, mask)
        sums.append(_sum_on_parts(xp, ScaledFeatures(*rows[:2]), ScaledFeatures(*rows[2:4]), rows[4], parts, own))
    lead = leading(2, q=queries.log_scale, k=keys.log_scale, v=v)[:-1]
    both = zip(zip(*sums, strict=True), (2, 1, 1), strict=True)
    return PeakedSum(
        *(
            xp.stack([xp.broadcast_to(x, (*lead, *x.shape[x.ndim - axes :])) for x in each], axis=-axes - 1)
            for each, axes in both
        )
    )


def _sum_on_parts(
    xp: ModuleType,
    queries: ScaledFeatures,
    keys: ScaledFeatures,
    v: Array,
    parts: tuple[Part, ...],
    mask: Array | None,
) -> PeakedSum:
    """Return sums by features over parts of a plan, a row per query."""
    lead, n = leading(2, q=queries.log_scale, k=keys.log_scale, v=v), queries.log_scale.shape[-2]
    known = anywhere(xp.all(xp.isfinite(v)))

    def begin(rows: Integers) -> Visit:
        tile = ScaledFeatures(*(rows_of(xp, x, rows) for x in queries))
        return lambda at, seen: _sum_visit(xp, tile, keys, v, at, seen, mask, known)

    return sums_over(xp, parts, begin, empty(xp, lead, n, n, v.shape[-1], v.dtype, v))


def _sum_visit(
    xp: ModuleType,
    queries: ScaledFeatures,
    keys: ScaledFeatures,
    v: Array,
    at: Integers,
    seen: NDArray[np.bool_],
    mask: Array | None,
    known: bool,
) -> PeakedSum:
    """Return the sums of tiles of queries (..., b, r, M) over a visit of each; all values are `known` to be finite.

    Every feature has the largest key that some row sees for its unit, as in sums over all keys.
    """
    sees = constant(xp, seen, xp.bool, v)
    if mask is not None:
        sees = sees & rows_of(xp, mask[..., None], at)[..., None, :, 0]
    values, log_scale = (rows_of(xp, x, at) for x in keys)  # (..., b, c, M | 1)
    log_scale = xp.where(xp.any(sees, axis=-2)[..., None], log_scale, -xp.inf)
    unit = finite(xp, xp.max(xp.where(xp.isnan(log_scale), -xp.inf, log_scale), axis=-2, keepdims=True))
    weights = values * xp.exp(log_scale - unit)
    log_scale = queries.log_scale + unit
    peak = finite(xp, xp.max(log_scale, axis=-1, keepdims=True))  # (..., b, r, 1)
    products = xp.matmul(queries.values * xp.exp(log_scale - peak), xp.matrix_transpose(weights))
    products = xp.where(sees, products, xp.zeros_like(products))
    there = rows_of(xp, v, at)
    s = xp.matmul(products, there) if known else blind_product(xp, products, there, xp.astype(sees, products.dtype))
    z = xp.sum(products, axis=-1)
    return PeakedSum(s, z, xp.where(xp.any(sees, axis=-1), peak[..., 0], -xp.inf))
