"""The CUDA C++ of every op: the headers that it uses, then its kernels."""

from functools import cache
from pathlib import Path

OPS = Path(__file__).parents[1]
TYPES = ("_cuda/device.cuh", "_cuda/tile.cuh", "_cuda/moves.cuh", "_cuda/types.cuh")
MAPS = (*TYPES, "_cuda/kinds.cuh", "_cuda/maps.cuh")
LINEAR = (*TYPES, "_cuda/octaves.cuh", "_cuda/output.cuh", "_cuda/kinds.cuh", "_cuda/maps.cuh", "_cuda/linear.cuh")
BACK = (*LINEAR, "features_vjp/pulled.cuh", "key_state_vjp/back.cuh")
HEADERS = {
    "features": (*MAPS, "_cuda/features.cuh"),
    "gram": (*MAPS, "_cuda/features.cuh"),
    "features_vjp": (*MAPS, "features_vjp/pulled.cuh"),
    "hadamard": MAPS,
    "countsketch": (*TYPES, "_cuda/sketch.cuh"),
    "tensor_sketch": (*TYPES, "_cuda/sketch.cuh"),
    "orthogonalize": TYPES,
    "key_state": LINEAR,
    "attend": LINEAR,
    "key_state_vjp": BACK,
    "attend_vjp": LINEAR,
    "causal_vjp": BACK,
    "causal": (*LINEAR, "causal/state.cuh", "causal/rows.cuh", "causal/chunk.cuh"),
    "step": LINEAR,
    "gated": (*TYPES, "gated/rows.cuh", "gated/chunk.cuh"),
    "_gated_chunks": (
        *TYPES,
        "gated/rows.cuh",
        "_gated_chunks/prepare.cuh",
        "_gated_chunks/channels.cuh",
        "_gated_chunks/walk.cuh",
    ),
    "gated_vjp": (*TYPES, "gated/rows.cuh", "gated/chunk.cuh", "gated_vjp/pull.cuh"),
    "causal_conv": TYPES,
    "causal_conv_step": TYPES,
    "selective_step": TYPES,
    "block_softmax": (
        *TYPES,
        "_cuda/output.cuh",
        "_cuda/plans.cuh",
        "block_softmax/visits.cuh",
        "block_softmax/keys.cuh",
        "block_softmax/stream.cuh",
    ),
    "block_softmax_vjp": (*TYPES, "_cuda/output.cuh", "_cuda/plans.cuh"),
}


@cache
def source(op: str) -> str:
    """Return the source of an op."""
    names = (*HEADERS[op], f"{op}/kernels.cu")
    return "\n".join(f'#line 1 "{name}"\n{(OPS / name).read_text(encoding="utf-8")}' for name in names)
