r"""The transformer of the source papers on plain arrays, :math:`T_l(x) = f_l(A_l(x) + x)`, with any attention."""

from kernattn._runtime.deprecated import old_names as _old_names
from kernattn.transformer._attention import Memory
from kernattn.transformer._axial import axial_decoder, axial_params, axial_shapes
from kernattn.transformer._checkpoints import load_checkpoint
from kernattn.transformer._config import Config
from kernattn.transformer._decoder import Decoder
from kernattn.transformer._experts import Experts
from kernattn.transformer._files import load_params, save_params
from kernattn.transformer._gated import GatedLayer
from kernattn.transformer._generate import generate
from kernattn.transformer._members import Gated
from kernattn.transformer._model import State, forward, prefill, prepare_memory, step
from kernattn.transformer._params import cast_params, initial_params, shapes
from kernattn.transformer._reversible import reversible, reversible_inverse
from kernattn.transformer._transfer import transfer

__all__ = [
    "Config",
    "Decoder",
    "Experts",
    "Gated",
    "GatedLayer",
    "Memory",
    "State",
    "axial_decoder",
    "axial_params",
    "axial_shapes",
    "cast_params",
    "forward",
    "generate",
    "initial_params",
    "load_checkpoint",
    "load_params",
    "prefill",
    "prepare_memory",
    "reversible",
    "reversible_inverse",
    "save_params",
    "shapes",
    "step",
    "transfer",
]

__getattr__ = _old_names(__name__, {"remember": "kernattn.transformer.prepare_memory"})


def __dir__() -> list[str]:
    return __all__
