"""Attention of models of Hugging Face's transformers: exact, by random features whose cache does not grow, gated."""

from kernattn._runtime.extras import require

require("torch", "PyTorch", "kernattn.huggingface", "huggingface")
require("transformers", "transformers", "kernattn.huggingface", "huggingface")

from kernattn.huggingface._accelerate import Acceleration, accelerate
from kernattn.huggingface._attention import Favor
from kernattn.huggingface._cache import StateCache
from kernattn.huggingface._register import register
from kernattn.huggingface._transfer import load_transfer, transfer
from kernattn.torch import Swap

__all__ = ["Acceleration", "Favor", "StateCache", "Swap", "accelerate", "load_transfer", "register", "transfer"]


def __dir__() -> list[str]:
    return __all__
