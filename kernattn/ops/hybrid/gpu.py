"""Both parts in CUDA: the kernels of causal and of exact attention, joined by array operations on the device.

Products of 16-bit rows run on tensor cores; what each part gives is rounded once before it is joined.
"""

from typing import Any

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace
from kernattn._plans.plan import Plan
from kernattn._sums.peaked import PeakedSum, before_rounding, rounded
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
    near = [xp.astype(x, wide, copy=False) for x in near]
    kept = (*near, before_rounding(xp, whole, v.dtype)) if keep else ()
    return rounded(xp, whole, v.dtype), normaliser, after, *kept
