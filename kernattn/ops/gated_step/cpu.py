"""One token of gated linear attention by Numba: where tokens erase, a pass reads the state; another renews it."""

from kernattn._arrays.namespaces import Array
from kernattn.ops.gated.cpu import run
from kernattn.ops.gated.tokens_loops import run_tokens
from kernattn.ops.gated_step.reference import sequence_of


def gated_step(
    state: Array | None, q: Array, k: Array, v: Array, g: Array | None, gk: Array | None, beta: Array | None,
    read: Array | None, write: Array | None, scale: float, l2_normalise: bool, key_mask: Array | None,
    reuse_state: bool, out: Array | None,
) -> tuple[Array, Array]:  # fmt: skip
    reused = state if reuse_state and state is not None and state.flags.carray else None
    sequence = sequence_of(q, k, v, g, gk, beta, read, write, key_mask, scale, l2_normalise, state)
    token, after = run(run_tokens, reused, *sequence)
    token = token[..., 0, :]
    if out is None:
        return token, after
    out[...] = token
    return out, after
