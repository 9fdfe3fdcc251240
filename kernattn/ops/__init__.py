"""The loops that array expressions do badly: one folder per op, its implementations side by side."""

from kernattn.ops import (
    attend,
    block_softmax,
    causal,
    countsketch,
    features,
    gram,
    hadamard,
    key_state,
    orthogonalize,
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
    )
}
