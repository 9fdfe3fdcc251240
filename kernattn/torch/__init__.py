r"""Attention and feature maps on PyTorch's tensors: :math:`o = \phi(q) S / \phi(q) z`, with compiled gradients."""

from kernattn._runtime.extras import require as _require

_require("torch", "PyTorch", "kernattn.torch", extra="torch")

from kernattn.torch import _library as _library  # noqa: E402
from kernattn.torch._attention import (  # noqa: E402
    attend,
    causal_linear_attention,
    features,
    key_state,
    linear_attention,
    linear_attention_step,
    softmax_attention,
    softmax_with_lse,
)
from kernattn.torch._maps import TensorMap, with_numbers  # noqa: E402
from kernattn.torch._mechanisms import (  # noqa: E402
    compressed_attention,
    kernel_attention,
    linformer_attention,
    lsh_attention,
    nystrom_attention,
    routing_attention,
    scatterbrain_attention,
)
from kernattn.torch._modules import FavorAttention, LinearAttention  # noqa: E402
from kernattn.torch._reversible import Reversible, reversible  # noqa: E402

__all__ = [
    "FavorAttention",
    "LinearAttention",
    "Reversible",
    "TensorMap",
    "attend",
    "causal_linear_attention",
    "compressed_attention",
    "features",
    "kernel_attention",
    "key_state",
    "linear_attention",
    "linear_attention_step",
    "linformer_attention",
    "lsh_attention",
    "nystrom_attention",
    "reversible",
    "routing_attention",
    "scatterbrain_attention",
    "softmax_attention",
    "softmax_with_lse",
    "with_numbers",
]


def __dir__() -> list[str]:
    return __all__
