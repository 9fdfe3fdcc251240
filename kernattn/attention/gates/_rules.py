"""Members of the delta rule and of the general one, which erase what a key reads."""

from typing import Any

from kernattn._arrays.namespaces import Array, namespace
from kernattn._arrays.plain import on_plain
from kernattn._runtime.checks import positive_number
from kernattn._runtime.elsewhere import told_keywords
from kernattn._sums.units import decay_rate
from kernattn.attention.gates._checks import (
    check_channels,
    check_heads,
    check_own_logs,
    check_rows,
    log_1p_exp,
    log_sigmoid,
    widen,
)


@told_keywords
@on_plain
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
    (x,) = widen(xp, b=b)
    return {"beta": factor * xp.exp(log_sigmoid(xp, x)), "l2_normalise": True}


@told_keywords
@on_plain
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
    check_rows(a=(a, "nd"), b=(b, "n"))
    check_heads("b", b, a_log=a_log)
    check_channels("a", a, dt_bias=dt_bias)
    a, a_log, dt_bias = widen(xp, a=a, a_log=a_log, dt_bias=dt_bias)
    logs = -decay_rate(a_log)[..., None, None] * log_1p_exp(xp, a + dt_bias[..., None, :])
    return {"gk": logs, **delta_net(b)}


@told_keywords
@on_plain
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
    check_rows(k=(k, "nd"), v=(v, "ne"), gk=(gk, "nd"), erase=(erase, "nd"), write=(write, "ne"))
    read = xp.astype(xp.exp(gk) * erase * k, gk.dtype, copy=False)
    return {"k": k, "v": xp.astype(write * v, v.dtype, copy=False), "gk": gk, "erase": (read, -k)}


@told_keywords
@on_plain
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
    check_rows(k=(k, "nhd"), q=(q, "nd"), v=(v, "nhe"), beta=(beta, "nh"), **gates)
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


@told_keywords
@on_plain
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
    check_rows(r=(r, "nd"), w=(w, "nd"), k=(k, "nd"), v=(v, "ne"), a=(a, "nd"), b=(b, "nd"))
    check_own_logs(w=w)
    return {"q": r, "k": k, "v": v, "gk": w, "erase": (a, b), "scale": 1.0}
