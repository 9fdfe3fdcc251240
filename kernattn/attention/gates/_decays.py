"""Members that fade, and neither erase nor replace: decays of heads, of tokens and of channels."""

from math import log1p
from typing import Any

from kernattn._arrays.namespaces import Array, anywhere, check_floating, dtype_name, namespace
from kernattn._arrays.plain import on_plain
from kernattn._runtime.checks import positive_integer, positive_number, whole_number
from kernattn._runtime.elsewhere import told_keywords
from kernattn._sums.units import decay_rate
from kernattn.attention.gates._checks import (
    check_channels,
    check_heads,
    check_own_logs,
    check_rows,
    constants,
    log_1p_exp,
    log_sigmoid,
    widen,
)
from kernattn.errors import ParameterError, ShapeError

FAINT = {"float32": 1e-20, "float64": 1e-100}
"""What is left of a state where a forget gate is 0: below rounding, and with room for cotangents times it."""


@told_keywords
@on_plain
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
    return {"g": constants([log1p(-(2.0 ** (-5 - h))) for h in range(heads)], like)}


@told_keywords
@on_plain
def lightning(num_heads: int, layer: int, num_layers: int, *, like: Array) -> dict[str, Any]:
    r"""Return the decays of lightning attention (MiniMax 2025): ALiBi's slopes, milder in later layers.

    :math:`g_h = -2^{-8 (h + 1) / H} (1 - \ell / (L - 1 + \epsilon) + \epsilon)` for :math:`\epsilon = 10^{-5}`. Where H
    is no power of 2, ALiBi's own slopes are others; these are those of transformers' MiniMax.

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
    return {"g": constants([-(2.0 ** (-8 * (h + 1) / heads)) * milder for h in range(heads)], like), "scale": 1.0}


@told_keywords
@on_plain
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
    check_heads("a", a, a_log=a_log, dt_bias=dt_bias)
    a, a_log, dt_bias = widen(xp, a=a, a_log=a_log, dt_bias=dt_bias)
    return {"g": -decay_rate(a_log)[..., None] * log_1p_exp(xp, a + dt_bias[..., None])}


@told_keywords
@on_plain
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
    (x,) = widen(xp, logits=logits)
    return {"gk": log_sigmoid(xp, x) / divisor}


@told_keywords
@on_plain
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
    (wide,) = widen(xp, f=f)
    faint = FAINT[dtype_name(wide)]
    return {"k": 1 - f, "gk": xp.log(xp.where(wide < faint, wide + faint, wide)), "scale": 1.0}


@told_keywords
@on_plain
def mamba2(x: Array, dt: Array, a: Array, b: Array, c: Array) -> dict[str, Any]:
    r"""Return Mamba-2's state space, :math:`S_t = e^{\Delta_t A} S_{t-1} + B_t (\Delta_t x_t)^T` (Dao and Gu 2024).

    Parameters
    ----------
    x : (..., heads, n, e) array
        What enters the state.
    dt : (..., heads, n) array
        Steps :math:`\Delta`, at least 0.
    a : (heads,) array
        The rate A of each head, below 0.
    b, c : (..., heads or 1, n, d) array
        How x enters the state of d numbers for each of the e, and how it is read. The term D x is added outside.
        Where b and c have G groups of heads, give an axis of its own to each: x (..., G, heads / G, n, e), `dt` and `a`
        likewise, and b and c (..., G, 1, n, d).

    Returns
    -------
    dict
        `q`, `k`, `v` and `g`; `scale`, which is 1. `v`, dt times x, is rounded to the dtype of x: of 16 bits, outputs
        have that rounding and their own.

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
    _check_groups(x, b, c)
    check_rows(x=(x, "ne"), dt=(dt, "n"), a=(a, ""), b=(b, "nd"), c=(c, "nd"))
    check_heads("dt", dt, a=a)
    if anywhere(a > 0):
        raise ParameterError("a must hold rates of at most 0; some are above")
    if anywhere(dt < 0):
        raise ParameterError("dt must hold steps of at least 0, as softplus makes them; some are below")
    v = xp.astype(dt[..., None] * x, x.dtype, copy=False)
    rates = xp.clip(a, float(xp.finfo(a.dtype).min), None)  # -inf times a step of 0 would be NaN
    return {"q": c, "k": b, "v": v, "g": dt * rates[..., None], "scale": 1.0}


def _check_groups(x: Array, *rows: Array) -> None:
    """Raise where rows are of groups of the heads of x, and lie beside them on one axis."""
    heads = tuple(x.shape)[-3:-2]
    for groups in (tuple(y.shape)[-3:-2] for y in rows):
        if heads and groups and groups not in ((1,), heads) and 0 < groups[0] < heads[0] and not heads[0] % groups[0]:
            each = heads[0] // groups[0]
            raise ShapeError(
                f"b and c have {groups[0]} groups of {each} of the {heads[0]} heads of x: give groups an axis, x "
                f"(..., {groups[0]}, {each}, n, e), dt and a likewise, and b and c (..., {groups[0]}, 1, n, d)"
            )


@told_keywords
@on_plain
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
    check_rows(r=(r, "nd"), w=(w, "nd"), k=(k, "nd"), v=(v, "ne"))
    check_channels("k", k, u=u)
    check_own_logs(w=w)
    bonus = xp.sum(r * u[..., None, :] * k, axis=-1, keepdims=True) * v

    def ahead(x: Array) -> Array:
        return xp.concat([xp.zeros_like(x[..., :1, :]), x], axis=-2)

    late = xp.concat([r, xp.zeros_like(r[..., :1, :])], axis=-2)
    given = {"q": late, "k": ahead(k), "v": ahead(v), "gk": ahead(w), "scale": 1.0}
    return given, xp.astype(bonus, v.dtype, copy=False)
