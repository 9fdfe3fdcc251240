"""The loops that array expressions do badly: one folder per op, its implementations side by side."""

from kernattn.ops import (
    attend,
    attend_vjp,
    block_softmax,
    block_softmax_vjp,
    causal,
    causal_vjp,
    countsketch,
    features,
    features_vjp,
    gram,
    hadamard,
    key_state,
    key_state_vjp,
    orthogonalize,
    pairwise,
    pairwise_product,
    step,
    tensor_sketch,
)

__all__ = ["OPS"]

OPS = {
    folder.OP.name: folder.OP
    for folder in (
        features,
        causal,
        step,
        key_state,
        attend,
        block_softmax,
        countsketch,
        tensor_sketch,
        hadamard,
        gram,
        orthogonalize,
        pairwise,
        pairwise_product,
        features_vjp,
        causal_vjp,
        key_state_vjp,
        attend_vjp,
        block_softmax_vjp,
    )
}
