"""What acts on each row alone: linear maps, norms, the feed-forward part."""

import sys
from collections.abc import Mapping
from importlib import import_module
from types import ModuleType

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace
from kernattn.errors import DTypeError
from kernattn.transformer._config import Config
from kernattn.transformer._halves import multiply, widen

Params = Mapping[str, Array]

CUBIC = 0.044715  # of the approximation to the Gaussian's distribution by Page (1977) and Hendrycks and Gimpel (2016)


def linear(params: Params, name: str, x: Array) -> Array:
    """Return x W + b."""
    y = multiply(x, params[f"{name}.weight"])
    bias = params.get(f"{name}.bias")
    return y if bias is None else y + widen(bias)


def norm(params: Params, config: Config, name: str, x: Array) -> Array:
    """Return rows of mean 0 and variance 1, or of mean square 1, times a scale: in float32 at least."""
    x = standardise(x, config.eps, config.norm == "layer") * widen(params[f"{name}.scale"])
    bias = params.get(f"{name}.bias")
    return x if bias is None else x + widen(bias)


def standardise(x: Array, eps: float, centred: bool = False) -> Array:
    """Return rows of mean square 1, of mean 0 too where they are `centred`: in float32 at least."""
    xp, dtype = namespace(x=x), x.dtype
    x = xp.astype(x, accumulation_dtype(xp, x), copy=False)
    if centred:
        x = x - xp.mean(x, axis=-1, keepdims=True)
    x = x / xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + eps)
    return xp.astype(x, dtype, copy=False)


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + e^-x)."""
    xp = namespace(x=x)
    small = xp.exp(xp.where(x > 0, -x, x))  # 1 at most: nothing overflows, in gradients neither
    return xp.where(x > 0, xp.ones_like(small), small) / (1 + small)


def silu(x: Array) -> Array:
    """Return x / (1 + e^-x)."""
    return x * sigmoid(x)


def feed_forward(params: Params, config: Config, name: str, x: Array) -> Array:
    """Return the rows of two linear maps with a nonlinearity between them; of "swiglu", three (Shazeer 2020)."""
    xp, up = namespace(x=x), linear(params, f"{name}.up", x)
    if config.activation == "swiglu":
        up = up * silu(linear(params, f"{name}.gate", x))
    elif config.activation == "relu":
        up = xp.where(up > 0, up, xp.zeros_like(up))
    elif config.activation == "gelu":
        up = 0.5 * up * (1 + _erf(xp, up * 0.5**0.5))
    else:
        up = 0.5 * up * (1 + xp.tanh(0.7978845608028654 * (up + CUBIC * up * up * up)))
    return linear(params, f"{name}.down", up)


def _erf(xp: ModuleType, x: Array) -> Array:
    """Return the error function, which the array API does not have, and each library in another place."""
    library = type(x).__module__.split(".", maxsplit=1)[0]
    if library == "torch":
        return xp.erf(x)
    if library in ("jax", "jaxlib"):
        return sys.modules["jax"].scipy.special.erf(x)
    if library not in ("cupy", "numpy"):
        raise DTypeError(f"activation 'gelu' needs an error function, which {library} lacks; 'gelu_tanh' does without")
    return import_module("scipy.special" if library == "numpy" else "cupyx.scipy.special").erf(x)
