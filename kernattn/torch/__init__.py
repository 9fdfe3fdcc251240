r"""Modules of PyTorch, reversible layers, and names of flash-linear-attention; tensors go to plain functions."""

from typing import Any as _Any

from kernattn._runtime.extras import require as _require

_require("torch", "PyTorch", "kernattn.torch", extra="torch")

from kernattn._runtime.checks import boolean as _boolean  # noqa: E402
from kernattn._runtime.checks import instance_of as _instance_of  # noqa: E402
from kernattn._runtime.deprecated import old_names as _old_names  # noqa: E402
from kernattn.features import FeatureMap as _FeatureMap  # noqa: E402
from kernattn.torch import _edge as _edge  # noqa: E402
from kernattn.torch import fla as fla  # noqa: E402
from kernattn.torch._modules import FavorAttention, LinearAttention  # noqa: E402
from kernattn.torch._reversible import Reversible, reversible  # noqa: E402
from kernattn.torch._transfer import HeadAttention, SoftmaxAttention, Swap, load_transfer, transfer  # noqa: E402

__all__ = [
    "FavorAttention",
    "HeadAttention",
    "LinearAttention",
    "Reversible",
    "SoftmaxAttention",
    "Swap",
    "fla",
    "load_transfer",
    "reversible",
    "transfer",
]

_CORE = (
    "attend", "causal_linear_attention", "kernel_attention", "key_state", "linear_attention", "linear_attention_step",
    "softmax_attention", "with_numbers",
)  # fmt: skip
_ATTENTION = (
    "compressed_attention", "linformer_attention", "lsh_attention", "nystrom_attention", "routing_attention",
    "scatterbrain_attention", "softmax_with_lse",
)  # fmt: skip


def _features(x: _Any, phi: _FeatureMap, *, keys: bool = False, backend: str | None = None) -> _Any:
    _instance_of("phi", phi, _FeatureMap)
    return (phi.key if _boolean("keys", keys) else phi.query)(x, backend=backend)


__getattr__ = _old_names(
    "kernattn.torch",
    {name: f"kernattn.{name}" for name in _CORE}
    | {name: f"kernattn.attention.{name}" for name in _ATTENTION}
    | {
        "TensorMap": "kernattn.features.LearntMap",
        "features": (
            "phi(x), or phi.key(x)",
            _features,
        ),
    },
)


def __dir__() -> list[str]:
    return __all__
