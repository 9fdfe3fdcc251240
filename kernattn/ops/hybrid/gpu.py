"""Both parts in CUDA: the kernels of causal and of exact attention, joined by array operations on the device.

Products of 16-bit rows run on tensor cores; what each part gives is rounded once before it is joined.
"""

from typing import Any

from kernattn._arrays.namespaces import Array, accumulation_dtype, largest, namespace
from kernattn._plans.plan import Plan
from kernattn._sums.peaked import PeakedSum, before_rounding
from kernattn.ops.block_softmax.gpu import block_softmax
from kernattn.ops.causal.gpu import causal as features
from kernattn.ops.hybrid.join import Map, join


def hybrid(
    q: Array, k: Array, v: Array, q_spec: Map, k_spec: Map, scale: float, plan: Plan, within: Plan, causal: bool,
    state: PeakedSum | None, key_mask: Array | None, segment_ids: Array | None, near_bias: Array | None, keep: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """Return the op's outputs."""
    whole, normaliser, after, *near = join(
        features, block_softmax, q, k, v, q_spec, k_spec, scale, plan, within, causal,
        state, key_mask, segment_ids, near_bias, keep,
    )  # fmt: skip
    xp, wide = namespace(v=v), accumulation_dtype(namespace(v=v), v)
    out = whole
    if out.dtype != v.dtype:  # no clip of what is rounded: array_api_compat refuses bfloat16
        out = xp.astype(xp.clip(out, -largest(v.dtype), largest(v.dtype)), v.dtype)
    near = [xp.astype(x, wide, copy=False) for x in near]
    kept = (*near, before_rounding(xp, whole, v.dtype)) if keep else ()
    return out, normaliser, after, *kept
