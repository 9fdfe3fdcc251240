"""Members of gated linear attention: each function returns arguments of `gated_linear_attention` by name."""

from math import log1p
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array, accumulation_dtype, anywhere, check_floating, constant, namespace
from kernattn._runtime.checks import positive_integer, positive_number, whole_number
from kernattn.errors import ParameterError, ShapeError

__all__ = ["delta", "gla", "hgrn2", "lightning", "mamba2", "retention", "rwkv7"]


def __dir__() -> list[str]:
    return __all__


def retention(num_heads: int, *, like: Array) -> dict[str, Any]:
    r"""Return RetNet's decays :math:`\gamma_h = 1 - 2^{-5 - h}` (Sun et al. 2023), constant for a head.

    Parameters
    ----------
    num_heads : int
        Heads of keys (..., num_heads, n, d).
    like : array
        An array of the keys' kind, device and dtype.

    Returns
    -------
    dict
        `g` (num_heads, 1).

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> np.exp(ka.gates.retention(3, like=np.zeros(1))["g"]).T
    array([[0.96875  , 0.984375 , 0.9921875]])
    """
    heads = positive_integer("num_heads", num_heads)
    return {"g": _constants([log1p(-(2.0 ** (-5 - h))) for h in range(heads)], like)}


def lightning(num_heads: int, layer: int, num_layers: int, *, like: Array) -> dict[str, Any]:
    r"""Return the decays of lightning attention (MiniMax 2025): ALiBi's slopes, milder in later layers.

    :math:`g_h = -2^{-8 (h + 1) / H} (1 - \ell / (L - 1 + \epsilon) + \epsilon)` for :math:`\epsilon = 10^{-5}`.

    Parameters
    ----------
    num_heads : int
        Heads H of keys (..., num_heads, n, d).
    layer : int
        Which layer this is, from 0 on.
    num_layers : int
        How many there are, L.
    like : array
        An array of the keys' kind, device and dtype.

    Returns
    -------
    dict
        `g` (num_heads, 1), and `scale`, which is 1.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.gates.lightning(2, 0, 12, like=np.zeros(1))["g"].T.round(4)
    array([[-0.0625, -0.0039]])
    """
    heads, layers = positive_integer("num_heads", num_heads), positive_integer("num_layers", num_layers)
    if whole_number("layer", layer) >= layers:
        raise ParameterError(f"layer must be below num_layers = {layers}; got {layer}")
    milder = 1 - layer / (layers - 1 + 1e-5) + 1e-5
    return {"g": _constants([-(2.0 ** (-8 * (h + 1) / heads)) * milder for h in range(heads)], like), "scale": 1.0}


def delta(a: Array, a_log: Array, dt_bias: Array) -> dict[str, Any]:
    r"""Return the gate of the gated delta rule, :math:`g = -e^{A} \log(1 + e^{a + b})` (Qwen3-Next's layers).

    Parameters
    ----------
    a : (..., heads, n) array
        What a layer projects its input to, with heads before tokens.
    a_log, dt_bias : (heads,) array
        Its parameters A and b, of the dtype of `a`.

    Returns
    -------
    dict
        `g` (..., heads, n), in the dtype in which sums run.

    Raises
    ------
    ShapeError
        A parameter does not fit the heads of `a`.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.gates.delta(np.zeros((1, 2)), np.zeros(1), np.zeros(1))["g"].round(4)
    array([[-0.6931, -0.6931]])
    """
    xp = namespace(a=a, a_log=a_log, dt_bias=dt_bias)
    _check_heads("a", a, a_log=a_log, dt_bias=dt_bias)
    a, a_log, dt_bias = _wide(xp, a=a, a_log=a_log, dt_bias=dt_bias)
    return {"g": -xp.exp(a_log)[..., None] * xp.logaddexp(a + dt_bias[..., None], xp.zeros_like(a))}


def gla(logits: Array, *, temperature: float = 16.0) -> dict[str, Any]:
    r"""Return the gates of gated linear attention, :math:`g = \log \sigma(x) / \tau` (Yang et al. 2024).

    Parameters
    ----------
    logits : (..., n, d) array
        What a layer projects its input to.
    temperature : float
        The divisor :math:`\tau`: larger ones remember longer.

    Returns
    -------
    dict
        `gk` (..., n, d), in the dtype in which sums run.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.gates.gla(np.zeros((1, 2)))["gk"].round(4)
    array([[-0.0433, -0.0433]])
    """
    xp, divisor = namespace(logits=logits), positive_number("temperature", temperature)
    (x,) = _wide(xp, logits=logits)
    return {"gk": -xp.logaddexp(-x, xp.zeros_like(x)) / divisor}


def hgrn2(f: Array) -> dict[str, Any]:
    r"""Return keys and gates of HGRN2, :math:`k = 1 - f` and :math:`g = \log f` (Qin et al. 2024).

    Parameters
    ----------
    f : (..., n, d) array
        Forget gates, in [0, 1].

    Returns
    -------
    dict
        `k` and `gk` (..., n, d); `scale`, which is 1.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.gates.hgrn2(np.full((1, 1), 0.5))["k"]
    array([[0.5]])
    """
    xp = namespace(f=f)
    check_floating("f", f)
    if anywhere((f < 0) | (f > 1)):
        raise ParameterError("f must hold forget gates in [0, 1]; some lie outside")
    with np.errstate(divide="ignore"):
        return {"k": 1 - f, "gk": xp.log(f), "scale": 1.0}


def mamba2(x: Array, dt: Array, a: Array, b: Array, c: Array) -> dict[str, Any]:
    r"""Return Mamba-2's state space, :math:`S_t = e^{\Delta_t A} S_{t-1} + B_t (\Delta_t x_t)^T` (Dao and Gu 2024).

    Parameters
    ----------
    x : (..., heads, n, e) array
        What enters the state.
    dt : (..., heads, n) array
        Steps :math:`\Delta`, above 0.
    a : (heads,) array
        The rate A of each head, below 0.
    b, c : (..., heads or 1, n, d) array
        How x enters the state of d numbers for each of the e, and how it is read. The term D x is added outside.

    Returns
    -------
    dict
        `q`, `k`, `v` and `g`; `scale`, which is 1.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x, ones = np.ones((1, 3, 1)), np.ones((1, 3, 1))
    >>> out, state = ka.gated_linear_attention(**ka.gates.mamba2(x, ones[..., 0], np.array([-1.0]), ones, ones))
    >>> out.round(4).ravel()
    array([1.    , 1.3679, 1.5032])
    """
    xp = namespace(x=x, dt=dt, a=a, b=b, c=c)
    for name, array in {"x": x, "dt": dt, "a": a, "b": b, "c": c}.items():
        check_floating(name, array)
    _check_heads("dt", dt, a=a)
    if anywhere(a > 0):
        raise ParameterError("a must hold rates of at most 0; some are above")
    v = xp.astype(dt[..., None] * x, x.dtype, copy=False)
    return {"q": c, "k": b, "v": v, "g": dt * a[..., None], "scale": 1.0}


def rwkv7(r: Array, w: Array, k: Array, v: Array, a: Array, b: Array) -> dict[str, Any]:
    r"""Return RWKV-7's rule, :math:`S_t = (\mathrm{diag}(e^{w_t}) + b_t a_t^T) S_{t-1} + k_t v_t^T` (Peng et al. 2025).

    Parameters
    ----------
    r : (..., n, d) array
        Receptances, which read the state.
    w : (..., n, d) array
        Natural logarithms of decays, at most 0.
    k : (..., n, d) array
        Keys.
    v : (..., n, e) array
        Values.
    a, b : (..., n, d) array
        What is read before the decay (the layer's minus normalised key), and where it is added (that key times its
        rate).

    Returns
    -------
    dict
        `q`, `k`, `v`, `gk` and `erase`; `scale`, which is 1.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x, v = np.ones((3, 1)), np.array([[8.0], [4.0], [2.0]])
    >>> out, state = ka.gated_linear_attention(**ka.gates.rwkv7(x, 0 * x, x, v, -x, x))
    >>> out.T
    array([[8., 4., 2.]])
    """
    namespace(r=r, w=w, k=k, v=v, a=a, b=b)
    return {"q": r, "k": k, "v": v, "gk": w, "erase": (a, b), "scale": 1.0}


def _check_heads(what: str, array: Array, **numbers: Array) -> None:
    """Raise unless there is a number for each head of an array (..., heads, n)."""
    for name, number in numbers.items():
        own, heads = tuple(number.shape), tuple(array.shape[:-1])
        if len(own) > len(heads) or any(x not in (1, y) for x, y in zip(own[::-1], heads[::-1], strict=False)):
            raise ShapeError(f"{what} must be (..., heads, n) and {name} (heads,); got {tuple(array.shape)} and {own}")


def _constants(logs: list[float], like: Array) -> Array:
    """Return logs of decays (heads, 1) beside an array."""
    xp = namespace(like=like)
    check_floating("like", like)
    return constant(xp, np.array(logs)[:, None], accumulation_dtype(xp, like), like)


def _wide(xp: Any, **arrays: Array) -> list[Array]:
    """Return arrays in the dtype in which sums over them run."""
    for name, array in arrays.items():
        check_floating(name, array)
    return [xp.astype(array, accumulation_dtype(xp, array), copy=False) for array in arrays.values()]
