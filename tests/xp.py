"""Kinds of array the library is handed in the tests: how to make one from NumPy and how to take it back.

A kind that is not installed (torch, jax), or has no device (cupy), is left out.
"""

import contextlib
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np

from kernattn.ops import OPS
from kernattn.ops.dispatch import BACKENDS, missing


@dataclass(frozen=True)
class Kind:
    name: str

    def __repr__(self):
        return self.name

    @property
    def dtypes(self):
        """Names of the real dtypes this kind has."""
        wide = ["float32", "float64"]
        if self.name in ("numpy", "readonly"):
            return ["float16", *wide] + ["bfloat16"] * bool(find_spec("ml_dtypes"))
        if self.name == "strict":
            return wide
        return ["float16", *wide] + ["bfloat16"] * (self.name != "cupy")

    def wide(self):
        """A context in which float64 exists: JAX has none by default."""
        if self.name != "jax":
            return contextlib.nullcontext()
        import jax

        return jax.enable_x64(True)

    def whole(self, function):
        """The function; JAX compiles it as one, which takes a tenth of the time of compiling one operation by one."""
        if self.name != "jax":
            return function
        import jax

        return jax.jit(function)

    def asarray(self, x, dtype=None):
        x = np.asarray(x)
        dtype = x.dtype.name if dtype is None else dtype
        if self.name in ("numpy", "readonly"):
            result = np.array(x, dtype=numpy_dtype(dtype))
            result.flags.writeable = self.name == "numpy"
            return result
        if self.name == "strict":
            import array_api_strict

            return array_api_strict.asarray(x.astype(dtype))
        if self.name == "torch":
            import torch

            return torch.tensor(x.astype(np.float64) if dtype == "bfloat16" else x, dtype=getattr(torch, dtype))
        if self.name == "jax":
            import jax.numpy as jnp

            return jnp.asarray(x, dtype=dtype)
        import cupy

        return cupy.asarray(x.astype(dtype))

    def holds(self, x):
        """Is x an array of this kind?"""
        module = type(x).__module__.split(".")[0]
        return module in {"readonly": ("numpy",), "strict": ("array_api_strict",), "jax": ("jax", "jaxlib")}.get(
            self.name, (self.name,)
        )


def numpy_dtype(name):
    if name == "bfloat16":
        import ml_dtypes

        return ml_dtypes.bfloat16
    return name


def dtype_name(x):
    """The dtype of any array, as a plain name."""
    return str(x.dtype).rsplit(".", maxsplit=1)[-1]


def to_numpy(x):
    """Any array as float64 (or bool, or integer) NumPy."""
    module = type(x).__module__.split(".")[0]
    if module == "torch":
        x = x.detach().cpu()
        x = (x.double() if x.is_floating_point() else x).numpy()
    elif module == "cupy":
        x = x.get()
    elif module == "array_api_strict":
        import array_api_strict

        x = x.to_device(array_api_strict.Device("CPU_DEVICE"))
    x = np.asarray(x)
    return x if x.dtype == bool or np.issubdtype(x.dtype, np.integer) else x.astype(np.float64)


NUMPY, JAX = Kind("numpy"), Kind("jax")
KINDS = [NUMPY, Kind("readonly"), Kind("strict")]
KINDS += [Kind(name) for name in ("torch", "jax") if find_spec(name)]
KINDS += [Kind("cupy")] * (missing("gpu") is None)  # the last, see backends


@dataclass(frozen=True)
class Backend:
    """A backend that can run here, and the kind of array it is fed in the tests of the laws."""

    name: str
    kind: Kind = NUMPY

    def __repr__(self):
        return self.name


def backends(*ops):
    """The backends that the table gives every one of these ops, and that can run here."""

    def runs(name):
        return all(name in OPS[op].backends for op in ops) and missing(name) is None

    return [Backend(name, KINDS[-1] if name == "gpu" else NUMPY) for name in BACKENDS if runs(name)]
