r"""Attention transfer: softmax attention of a trained model becomes linear attention whose maps were fitted to it."""

from kernattn.transfer._heads import Heads
from kernattn.transfer._result import Layer, Transfer, load

__all__ = ["Heads", "Layer", "Transfer", "load"]


def __dir__() -> list[str]:
    return __all__
