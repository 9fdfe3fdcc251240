"""Both parts by array operations, from inputs that are no narrower than the sums over them."""

from typing import Any

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace
from kernattn._plans.plan import Plan
from kernattn._sums.peaked import PeakedSum, before_rounding, rounded
from kernattn.errors import ParameterError
from kernattn.ops.block_softmax.reference import block_softmax
from kernattn.ops.causal import reference as features
from kernattn.ops.hybrid.join import Map, join


def hybrid(
    q: Array, k: Array, v: Array, q_spec: Map, k_spec: Map, scale: float, plan: Plan, within: Plan, causal: bool,
    state: PeakedSum | None, key_mask: Array | None, segment_ids: Array | None, near_bias: Array | None, keep: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the op's outputs."""
    if plan.kind == "window":
        raise ParameterError(
            "array operations of attention with a window, or of packed sequences in which all tokens see all, are made "
            "for one number of tokens; got a symbol: export with backend=None and a compiled map, or for each length"
        )
    xp, given = namespace(v=v), v.dtype
    wide = accumulation_dtype(xp, v)
    q, k, v = (xp.astype(x, wide, copy=False) for x in (q, k, v))
    whole, *rest = join(
        features.causal, block_softmax, q, k, v, q_spec, k_spec, scale, plan, within, causal,
        state, key_mask, segment_ids, near_bias, keep,
    )  # fmt: skip
    out = rounded(xp, whole, given)
    return (out, *rest, before_rounding(xp, whole, given)) if keep else (out, *rest)
