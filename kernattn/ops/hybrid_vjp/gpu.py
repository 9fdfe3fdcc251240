"""The way back in CUDA: the kernels of causal and of exact attention, and array operations on the device between them.

The kernel of exact attention takes the normalisers of the whole as they are, however far its rows lie.
"""

from kernattn._arrays.namespaces import Array
from kernattn._maps.spec import MapSpec
from kernattn._plans.plan import Plan
from kernattn._sums.peaked import Normaliser, PeakedSum
from kernattn.ops.block_softmax_vjp.gpu import block_softmax_vjp
from kernattn.ops.causal_vjp.gpu import causal_vjp
from kernattn.ops.hybrid_vjp.parts import Cotangents, Given, Made, Parts
from kernattn.ops.hybrid_vjp.reference import pull_wide, row_scales

PARTS = Parts(causal_vjp, block_softmax_vjp, row_scales)


def hybrid_vjp(
    q: Array, k: Array, v: Array, q_spec: MapSpec, k_spec: MapSpec, scale: float, plan: Plan, within: Plan,
    causal: bool, state: PeakedSum | None, key_mask: Array | None, segment_ids: Array | None, near_bias: Array | None,
    out: Array, normaliser: Normaliser, near: Array, near_lse: Array, g: Array, after: PeakedSum | None, learn: bool,
) -> Cotangents:  # fmt: skip
    """Return the cotangents of what the op took."""
    given = Given(q, k, v, q_spec, k_spec, scale, plan, within, causal, state, key_mask, segment_ids, near_bias)
    return pull_wide(PARTS, given, Made(out, normaliser, near, near_lse, g, after), learn)
