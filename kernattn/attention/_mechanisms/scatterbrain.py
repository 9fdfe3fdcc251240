"""Attention that is exact on a pattern and by features elsewhere."""

from __future__ import annotations

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.bridge import cast_once
from kernattn._arrays.graphs import traceable
from kernattn._arrays.namespaces import Array, anywhere, constant, namespace, unmasked, widest, without_flags
from kernattn._maps.spec import ScaledFeatures
from kernattn._plans.parts import Part
from kernattn._plans.plan import Plan
from kernattn._runtime.checks import boolean
from kernattn._sums.peaked import PeakedSum, empty, finite, merge, quotient, read, summarise
from kernattn.attention._check import check_arrays, feature_map
from kernattn.attention._lowering import computed_features, implementation
from kernattn.attention._shapes import leading
from kernattn.attention._softmax import plan_of, softmax_with_lse
from kernattn.attention.patterns import Pattern
from kernattn.errors import ShapeError
from kernattn.features import FeatureMap
from kernattn.kernels import Softmax
from kernattn.ops.block_softmax.parts_reference import Integers, Visit, blind_product, each_head, rows_of, sums_over
from kernattn.ops.causal import OP as CAUSAL


@traceable("scatterbrain_attention")
@cast_once
@without_flags
def scatterbrain_attention(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    pattern: Pattern | Plan,
    *,
    causal: bool = False,
    key_mask: Array | None = None,
    backend: str | None = None,
) -> Array:
    r"""Return :math:`o_i = \sum_j w_{ij} v_j / \sum_j w_{ij}`, exact on a pattern and by features elsewhere.

    :math:`w_{ij} = e^{s q_i^T k_j}` where the pattern lets row i see key j, else :math:`\phi(q_i)^T \phi(k_j)`.
    ScatterBrain, Chen et al. (2021), section 4.1: sums of features over all keys, plus those of
    :math:`e^{s q_i^T k_j} - \phi(q_i)^T \phi(k_j)` over the pattern. Memory is linear in the number of tokens.

    The difference loses as many digits as the features' weight on the pattern exceeds what is left, so that features
    and their sums are taken in float64 whatever the dtype of the arrays is (in float32 on JAX without it). Logarithms
    of sums are kept apart: no norm overflows them.

    Parameters
    ----------
    q, k, v : (..., n, d), (..., l, d) and (..., l, e) arrays
        Queries, keys and values, of dtype float16, bfloat16, float32 or float64. Leading axes broadcast.
    phi : FeatureMap
        A map of the softmax kernel. The scale s is its kernel's; :math:`d^{-1/2}` for a map of none.
    pattern : Pattern or Plan
        Where weights are exact: one of `kernattn.patterns`, or the plan that one makes for these lengths.
    causal : bool
        Whether a query sees only what stands at or before it, on the pattern and elsewhere. The queries are the last n
        of the l positions.
    key_mask : (..., l) bool array, optional
        True where there is a key.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation of exact attention and of causal sums runs; None chooses the fastest for these arrays.

    Returns
    -------
    (..., n, e) array
        Outputs, of the kind, device and dtype of the inputs. A row whose normaliser is exactly 0 is 0. Signed features
        (trigonometric) can give normalisers below 0, which are left as they are; those of positive features are
        positive, to rounding.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, BackendUnavailable
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 64, 4))
    >>> phi = ka.random_features(ka.kernels.Softmax(), dim=4, num_features=32, rng=0)
    >>> exact, near = ka.softmax_attention(q, k, v), ka.patterns.local(8)
    >>> both = ka.attention.scatterbrain_attention(q, k, v, phi, near)
    >>> apart = ka.linear_attention(q, k, v, phi), ka.softmax_attention(q, k, v, pattern=near)
    >>> [bool(np.mean((both - exact) ** 2) < np.mean((each - exact) ** 2)) for each in apart]
    [True, True]
    """
    check_arrays("qkv", q, k, v, phi=feature_map(phi), key_mask=key_mask)
    plan = plan_of(pattern, q, k, v, boolean("causal", causal))
    if q.shape[-2] > k.shape[-2]:
        raise ShapeError(f"queries are the last n of the l tokens; got n = {q.shape[-2]}, l = {k.shape[-2]}")
    xp, k, v = namespace(q=q), unmasked(k, key_mask), unmasked(v, key_mask)
    kernel = getattr(phi, "kernel", None)
    scale = kernel.scale if isinstance(kernel, Softmax) else None
    near, lse = softmax_with_lse(q, k, v, scale=scale, key_mask=key_mask, pattern=plan, backend=backend)
    wide, given = widest(xp, v), v.dtype
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
