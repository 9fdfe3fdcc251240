"""Members of gated linear attention: each function returns arguments of `gated_linear_attention` by name."""

from collections.abc import Sequence
from math import log1p
from typing import Any

import numpy as np

from kernattn._arrays.graphs import traceable_member
from kernattn._arrays.namespaces import (
    Array,
    accumulation_dtype,
    anywhere,
    check_floating,
    constant,
    dtype_name,
    namespace,
)
from kernattn._arrays.shapes import broadcast
from kernattn._runtime.checks import positive_integer, positive_number, whole_number
from kernattn.attention._gated import decay_rate
from kernattn.errors import EmptyInputError, ParameterError, ShapeError

__all__ = [
    "delta_net",
    "delta_product",
    "gdn2",
    "gla",
    "hgrn2",
    "kda",
    "lightning",
    "mamba2",
    "retention",
    "rwkv6",
    "rwkv7",
    "softplus",
]


FAINT = {"float32": 1e-20, "float64": 1e-100}
"""What is left of a state where a forget gate is 0: below rounding, and with room for cotangents times it."""


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


def softplus(a: Array, a_log: Array, dt_bias: Array) -> dict[str, Any]:
    r"""Return :math:`g = -e^{A} \log(1 + e^{a + b})`, the gate of Mamba-2 and of the gated delta rule (Qwen3-Next).

    Yang, Kautz and Hatamizadeh (2024); with `delta_net` for `beta` it is their layer.

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
    >>> ka.gates.softplus(np.zeros((1, 2)), np.zeros(1), np.zeros(1))["g"].round(4)
    array([[-0.6931, -0.6931]])
    """
    xp = namespace(a=a, a_log=a_log, dt_bias=dt_bias)
    _check_heads("a", a, a_log=a_log, dt_bias=dt_bias)
    a, a_log, dt_bias = _wide(xp, a=a, a_log=a_log, dt_bias=dt_bias)
    return {"g": -decay_rate(a_log)[..., None] * _softplus(xp, a + dt_bias[..., None])}


def delta_net(b: Array, *, most: float = 1.0) -> dict[str, Any]:
    r"""Return how much DeltaNet replaces, :math:`\beta = c\, \sigma(b)` (Yang et al. 2024, "Parallelizing").

    :math:`S_t = (I - \beta_t k_t k_t^T) S_{t-1} + \beta_t k_t v_t^T` for keys of norm 1.

    Parameters
    ----------
    b : (..., n) array
        What a layer projects its input to.
    most : float
        The factor c; 2 lets a state change its sign (Grazzi et al. 2025).

    Returns
    -------
    dict
        `beta` (..., n), in the dtype in which sums run; `l2_normalise`, which is True.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.gates.delta_net(np.array([-1.0, 0.0]), most=2)["beta"].round(4)
    array([0.5379, 1.    ])
    """
    xp, factor = namespace(b=b), positive_number("most", most)
    (x,) = _wide(xp, b=b)
    return {"beta": factor * xp.exp(_log_sigmoid(xp, x)), "l2_normalise": True}


def kda(a: Array, a_log: Array, dt_bias: Array, b: Array) -> dict[str, Any]:
    r"""Return the gates of Kimi Delta Attention (Kimi 2025): those of `softplus`, one for each channel of a key.

    :math:`S_t = (I - \beta_t k_t k_t^T)\, \mathrm{diag}(e^{g_t}) S_{t-1} + \beta_t k_t v_t^T` for keys of norm 1,
    :math:`g = -e^{A} \log(1 + e^{a + c})` and :math:`\beta = \sigma(b)`.

    Parameters
    ----------
    a : (..., heads, n, d) array
        What a layer projects its input to.
    a_log : (heads,) array
        Its parameter A, of the dtype of `a`.
    dt_bias : (heads, d) array
        Its parameter c, of that dtype.
    b : (..., heads, n) array
        What it projects its input to for `beta`.

    Returns
    -------
    dict
        `gk` (..., heads, n, d) and `beta` (..., heads, n), in the dtype in which sums run; `l2_normalise`, which is
        True.

    Raises
    ------
    ShapeError
        A parameter does not fit the heads of `a`.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> zeros = np.zeros((1, 2, 1))
    >>> ka.gates.kda(zeros, np.zeros(1), np.zeros((1, 1)), zeros[..., 0])["gk"].round(4).ravel()
    array([-0.6931, -0.6931])
    """
    xp = namespace(a=a, a_log=a_log, dt_bias=dt_bias, b=b)
    _check_rows(a=(a, "nd"), b=(b, "n"))
    _check_heads("b", b, a_log=a_log)
    _check_channels("a", a, dt_bias=dt_bias)
    a, a_log, dt_bias = _wide(xp, a=a, a_log=a_log, dt_bias=dt_bias)
    logs = -decay_rate(a_log)[..., None, None] * _softplus(xp, a + dt_bias[..., None, :])
    return {"gk": logs, **delta_net(b)}


def gdn2(k: Array, v: Array, gk: Array, erase: Array, write: Array) -> dict[str, Any]:
    r"""Return Gated DeltaNet-2's rule (Hatamizadeh, Choi and Kautz 2026), which erases and writes by gates of channels.

    :math:`S_t = (I - k_t (b_t \odot k_t)^T)\, \mathrm{diag}(e^{g_t}) S_{t-1} + k_t (w_t \odot v_t)^T`

    Parameters
    ----------
    k : (..., n, d) array
        Keys. Here they must be of norm 1, as that layer has them: `l2_normalise` would reach one factor only.
    v : (..., n, e) array
        Values.
    gk : (..., n, d) array
        Logarithms of decays, at most 0.
    erase, write : array
        Gates b (..., n, d) of what is erased, and w (..., n, e) of what is written, in [0, 1].

    Returns
    -------
    dict
        `k`, `v`, `gk` and `erase`.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x, v = np.ones((3, 1)), np.array([[8.0], [4.0], [2.0]])
    >>> out, state = ka.gated_linear_attention(x, **ka.gates.gdn2(x, v, 0 * x, 0.5 * x, x))
    >>> out.T  # half of what was there is erased
    array([[8., 8., 6.]])
    """
    xp = namespace(k=k, v=v, gk=gk, erase=erase, write=write)
    _check_rows(k=(k, "nd"), v=(v, "ne"), gk=(gk, "nd"), erase=(erase, "nd"), write=(write, "ne"))
    read = xp.astype(xp.exp(gk) * erase * k, gk.dtype, copy=False)
    return {"k": k, "v": xp.astype(write * v, v.dtype, copy=False), "gk": gk, "erase": (read, -k)}


def delta_product(q: Array, k: Array, v: Array, beta: Array, g: Array | None = None) -> dict[str, Any]:
    r"""Return DeltaProduct (Siems et al. 2025): h steps of the delta rule for each token, as n h tokens.

    :math:`S_t = \prod_j (I - \beta_{tj} k_{tj} k_{tj}^T)\, e^{g_t} S_{t-1} + \dots` The gate is of the first step, the
    query of the last: outputs of tokens are ``out[..., h - 1 :: h, :]``, and others are 0.

    Parameters
    ----------
    q : (..., n, d) array
        Queries.
    k : (..., n, h, d) array
        Keys of the h steps.
    v : (..., n, h, e) array
        Values.
    beta : (..., n, h) array
        How much of what a key reads is replaced.
    g : (..., n) array, optional
        Logarithms of decays, at most 0.

    Returns
    -------
    dict
        `q`, `k`, `v` of n h tokens, `beta`, and `g` if it was given; `l2_normalise`, which is True.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> q, beta = np.ones((2, 1)), np.ones((2, 2))
    >>> k, v = np.ones((2, 2, 1)), np.arange(4.0).reshape(2, 2, 1)
    >>> out, state = ka.gated_linear_attention(**ka.gates.delta_product(q, k, v, beta))
    >>> out[1::2].round(4).T
    array([[1., 3.]])
    """
    xp = namespace(q=q, k=k, v=v, beta=beta, **({} if g is None else {"g": g}))
    gates = {} if g is None else {"g": (g, "n")}
    _check_rows(k=(k, "nhd"), q=(q, "nd"), v=(v, "nhe"), beta=(beta, "nh"), **gates)
    h = k.shape[-2]

    def flat(x: Array, axes: int) -> Array:
        return xp.reshape(x, (*x.shape[: x.ndim - axes], -1, *x.shape[x.ndim - axes + 2 :]))

    def place(x: Array, axis: int, last: bool) -> Array:
        x = xp.expand_dims(x, axis=axis)
        others = [xp.zeros_like(x)] * (h - 1)
        return xp.concat([*others, x] if last else [x, *others], axis=axis)

    given = {} if g is None else {"g": flat(place(g, -1, False), 2)}
    rows = {"q": flat(place(q, -2, True), 3), "k": flat(k, 3), "v": flat(v, 3), "beta": flat(beta, 2)}
    return {**rows, **given, "l2_normalise": True}


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
    return {"gk": _log_sigmoid(xp, x) / divisor}


def hgrn2(f: Array) -> dict[str, Any]:
    r"""Return keys and gates of HGRN2, :math:`k = 1 - f` and :math:`g = \log f` (Qin et al. 2024).

    Where f is 0, g is the log of 1e-20 (1e-100 in float64), far below rounding: no gradient would come back through a
    log of -inf, while that of f at 0 is as finite as elsewhere. By hand it is the cotangent of `gk` times
    :math:`e^{-g}`, less that of `k`. To forget infinities, give `gk` = -inf yourself.

    Parameters
    ----------
    f : (..., n, d) array
        Forget gates, in [0, 1].

    Returns
    -------
    dict
        `k` (..., n, d), and `gk` (..., n, d) in the dtype in which sums run; `scale`, which is 1.

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
    (wide,) = _wide(xp, f=f)
    faint = FAINT[dtype_name(wide)]
    return {"k": 1 - f, "gk": xp.log(xp.where(wide < faint, wide + faint, wide)), "scale": 1.0}


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
    _check_rows(x=(x, "ne"), dt=(dt, "n"), a=(a, ""), b=(b, "nd"), c=(c, "nd"))
    _check_heads("dt", dt, a=a)
    if anywhere(a > 0):
        raise ParameterError("a must hold rates of at most 0; some are above")
    v = xp.astype(dt[..., None] * x, x.dtype, copy=False)
    return {"q": c, "k": b, "v": v, "g": dt * a[..., None], "scale": 1.0}


def rwkv6(r: Array, w: Array, k: Array, v: Array, u: Array) -> tuple[dict[str, Any], Array]:
    r"""Return RWKV-6 (Peng et al. 2024): :math:`o_t = (S_{t-1} + \mathrm{diag}(u) k_t v_t^T)^T r_t`, in two parts.

    :math:`S_t = \mathrm{diag}(e^{w_t}) S_{t-1} + k_t v_t^T`. Receptances read before their token: one token of nothing
    goes ahead, and each stands one place earlier. So the outputs are ``out[..., :-1, :] + bonus``. A mask has n + 1
    tokens, too. Packed sequences must be taken apart: where one begins, its receptance would read the one before.

    Parameters
    ----------
    r : (..., heads, n, d) array
        Receptances.
    w : (..., heads, n, d) array
        Natural logarithms of decays, at most 0.
    k : (..., heads, n, d) array
        Keys.
    v : (..., heads, n, e) array
        Values.
    u : (heads, d) array
        How much each channel counts of the token itself.

    Returns
    -------
    dict
        `q`, `k`, `v` and `gk` of n + 1 tokens; `scale`, which is 1.
    bonus : (..., heads, n, e) array
        What the tokens themselves give, :math:`(r_t^T \mathrm{diag}(u) k_t)\, v_t`.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x, v = np.ones((1, 3, 1)), np.array([[[8.0], [4.0], [2.0]]])
    >>> given, bonus = ka.gates.rwkv6(x, 0 * x, x, v, np.full((1, 1), 0.5))
    >>> out, state = ka.gated_linear_attention(**given)
    >>> (out[..., :-1, :] + bonus).ravel()
    array([ 4., 10., 13.])
    """
    xp = namespace(r=r, w=w, k=k, v=v, u=u)
    _check_rows(r=(r, "nd"), w=(w, "nd"), k=(k, "nd"), v=(v, "ne"))
    _check_channels("k", k, u=u)
    bonus = xp.sum(r * u[..., None, :] * k, axis=-1, keepdims=True) * v

    def ahead(x: Array) -> Array:
        return xp.concat([xp.zeros_like(x[..., :1, :]), x], axis=-2)

    late = xp.concat([r, xp.zeros_like(r[..., :1, :])], axis=-2)
    given = {"q": late, "k": ahead(k), "v": ahead(v), "gk": ahead(w), "scale": 1.0}
    return given, xp.astype(bonus, v.dtype, copy=False)


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
    _check_rows(r=(r, "nd"), w=(w, "nd"), k=(k, "nd"), v=(v, "ne"), a=(a, "nd"), b=(b, "nd"))
    return {"q": r, "k": k, "v": v, "gk": w, "erase": (a, b), "scale": 1.0}


def _check_rows(**given: tuple[Array, str]) -> None:
    """Raise unless last axes of one letter have one size, those before them broadcast, and all hold floats."""
    sizes: dict[str, int] = {}
    leads, beside = {}, ""
    for name, (x, axes) in given.items():
        check_floating(name, x)
        shape = tuple(x.shape)
        own = shape[max(0, len(shape) - len(axes)) :]
        if 0 in shape:
            raise EmptyInputError(f"{name} must not be empty; got shape {shape}")
        if len(own) < len(axes) or any(sizes.setdefault(*each) != each[1] for each in zip(axes, own, strict=True)):
            wanted = "".join(f", {sizes.get(axis, axis)}" for axis in axes)
            raise ShapeError(f"{name} must be (...{wanted}){beside}; got shape {shape}")
        leads[name] = shape[: len(shape) - len(axes)]
        beside = beside or f" beside {name} {shape}"
    broadcast(**leads)


def _check_heads(what: str, array: Array, **numbers: Array) -> None:
    """Raise unless there is a number for each head of an array (..., heads, n)."""
    for name, number in numbers.items():
        if not _fits(number.shape, array.shape[:-1]):
            got = f"{tuple(array.shape)} and {tuple(number.shape)}"
            raise ShapeError(f"{what} must be (..., heads, n) and {name} (heads,); got {got}")


def _check_channels(what: str, array: Array, **numbers: Array) -> None:
    """Raise unless there is a number for each head and channel of an array (..., heads, n, d)."""
    for name, number in numbers.items():
        check_floating(name, number)
        if array.ndim < 2 or number.ndim < 1 or not _fits(number.shape, (*array.shape[:-2], array.shape[-1])):
            got = f"{tuple(array.shape)} and {tuple(number.shape)}"
            raise ShapeError(f"{what} must be (..., heads, n, d) and {name} (heads, d); got {got}")


def _fits(own: Sequence[int], axes: Sequence[int]) -> bool:
    """Return whether an array broadcasts to these axes."""
    return len(own) <= len(axes) and all(x in (1, y) for x, y in zip(own[::-1], axes[::-1], strict=False))


def _softplus(xp: Any, x: Array) -> Array:
    return xp.logaddexp(x, xp.zeros_like(x))


def _log_sigmoid(xp: Any, x: Array) -> Array:
    return -_softplus(xp, -x)


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


for _name in __all__:
    traceable_member(_name)(globals()[_name])
