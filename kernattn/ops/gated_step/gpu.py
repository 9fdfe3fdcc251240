"""One token of gated linear attention in CUDA: the kernel `tokens` of the op `gated`, in place where that is asked."""

from kernattn._arrays.namespaces import Array
from kernattn.ops.gated.gpu import run
from kernattn.ops.gated_step.reference import gated_step as reference
from kernattn.ops.gated_step.reference import sequence_of


def gated_step(
    state: Array | None, q: Array, k: Array, v: Array, g: Array | None, gk: Array | None, beta: Array | None,
    read: Array | None, write: Array | None, scale: float, l2_normalise: bool, key_mask: Array | None,
    reuse_state: bool, out: Array | None,
) -> tuple[Array, Array]:  # fmt: skip
    """Leave states without room in shared memory to array operations."""
    sequence = sequence_of(q, k, v, g, gk, beta, read, write, key_mask, scale, l2_normalise, state)
    made = run(None if out is None else out[..., None, :], state if reuse_state else None, *sequence)
    if made is None:
        return reference(state, q, k, v, g, gk, beta, read, write, scale, l2_normalise, key_mask, reuse_state, out)
    return made[0][..., 0, :] if out is None else out, made[1]
