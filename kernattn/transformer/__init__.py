r"""The transformer of the source papers on plain arrays, :math:`T_l(x) = f_l(A_l(x) + x)`, with any attention."""

from kernattn.transformer._attention import Memory
from kernattn.transformer._axial import axial_decoder, axial_params, axial_shapes
from kernattn.transformer._checkpoints import load_checkpoint
from kernattn.transformer._config import Config
from kernattn.transformer._decoder import Decoder
from kernattn.transformer._files import load_params, save_params
from kernattn.transformer._generate import generate
from kernattn.transformer._model import State, forward, prefill, remember, step
from kernattn.transformer._params import initial_params, shapes
from kernattn.transformer._reversible import reversible, reversible_inverse

__all__ = [
    "Config",
    "Decoder",
    "Memory",
    "State",
    "axial_decoder",
    "axial_params",
    "axial_shapes",
    "forward",
    "generate",
    "initial_params",
    "load_checkpoint",
    "load_params",
    "prefill",
    "remember",
    "reversible",
    "reversible_inverse",
    "save_params",
    "shapes",
    "step",
]


def __dir__() -> list[str]:
    return __all__
