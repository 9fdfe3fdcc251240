"""Attention and features on arrays of JAX: the compiled loops under `jit`, `grad`, `vmap` and `scan`."""

from kernattn._runtime.extras import require

require("jax", "JAX", "kernattn.jax", extra="jax")

from kernattn.jax._attention import (  # noqa: E402
    causal_linear_attention,
    features,
    linear_attention,
    softmax_attention,
)
from kernattn.jax._states import attend, key_state, linear_attention_step  # noqa: E402

__all__ = [
    "attend",
    "causal_linear_attention",
    "features",
    "key_state",
    "linear_attention",
    "linear_attention_step",
    "softmax_attention",
]


def __dir__() -> list[str]:
    return __all__
