"""Linear attention with gates and the delta rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kernattn._arrays.bridge import autocast
from kernattn._arrays.door import crossed_at_once, crossed_looking
from kernattn._arrays.forms import Forms, form_of_given
from kernattn._arrays.graphs import traceable
from kernattn._arrays.namespaces import (
    Array,
    accumulation_dtype,
    dtype_name,
    namespace,
)
from kernattn._arrays.shapes import broadcast
from kernattn._runtime.checks import boolean, finite_number
from kernattn._sums.peaked import no_item
from kernattn.attention._check import check_arrays, check_one_dim, check_out
from kernattn.attention._check_gates import check_gates, check_logs, pair_of, warn_of_growth, warn_of_shares
from kernattn.attention._shapes import axis_kept, equal
from kernattn.errors import (
    DTypeError,
    EmptyInputError,
    ParameterError,
    ShapeError,
    StateMismatchError,
)
from kernattn.ops.gated import OP
from kernattn.ops.gated_step import OP as STEP

_passed = Forms()


class GatedState(NamedTuple):
    r"""What gated linear attention remembers: :math:`S`, float64 for float64 arrays, else float32."""

    s: Array  # (..., d, e)

    def __getitem__(self, index: Any) -> Any:
        return no_item(self, index)


@traceable("gated_linear_attention")
@crossed_at_once
def gated_linear_attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    g: Array | None = None,
    gk: Array | None = None,
    beta: Array | None = None,
    erase: tuple[Array, Array] | None = None,
    scale: float | None = None,
    l2_normalise: bool = False,
    state: GatedState | None = None,
    key_mask: Array | None = None,
    segment_ids: Array | None = None,
    backend: str | None = None,
) -> tuple[Array, GatedState]:
    r"""Return :math:`o_t = s\, S_t^T q_t` and the last state, of a state that gates let fade.

    .. math:: S_t = \mathrm{diag}(e^{g_t}) S_{t-1} + k_t v_t^T,

    with `beta` the gated delta rule (Yang, Kautz and Hatamizadeh 2024),

    .. math:: S_t = (I - \beta_t k_t k_t^T)\, \mathrm{diag}(e^{g_t}) S_{t-1} + \beta_t k_t v_t^T,

    and with `erase` = (a, b) the general rule of RWKV-7 (Peng et al. 2025), :math:`S_t = \mathrm{diag}(e^{g_t}) S_{t-1}
    + b_t (S_{t-1}^T a_t)^T + k_t v_t^T`. Time is linear in n. RetNet, GLA, Mamba-2, DeltaNet, Qwen3-Next's layer and
    Kimi Delta Attention are members: `kernattn.gates` makes their arguments. There is no feature map and no normaliser.
    Decays are e to sums of logs, never to differences of sums: strong gates among mild ones lose no digits, and -inf
    resets a state.

    Parameters
    ----------
    q, k : (..., n, d) array
        Queries and keys, of dtype float16, bfloat16, float32 or float64. Leading axes broadcast as in
        `causal_linear_attention`.
    v : (..., n, e) array
        Values.
    g : (..., n) or (..., 1) array, optional
        Natural logarithms of decays, at most 0, one for all channels of a key. Under `jit` of JAX and on a GPU, where
        values are not looked at, one above 0 raises nothing, and the state grows. Its leading axes, and those of `gk`,
        `beta` and `erase`, broadcast against those of k and v; its dtype, and theirs, may be that of q, or float32 for
        16-bit queries.
    gk : (..., n, d) array, optional
        Logarithms of decays of each channel; they add to those of `g`.
    beta : (..., n) or (..., 1) array, optional
        How much of what k reads is replaced by v, in [0, 2] for keys of norm 1. Where it is below 0, or beta k^T k is
        above 2, the rule is computed as it is written, and the state grows at every such token.
    erase : pair of (..., n, d) arrays, optional
        What is read before the decay, a, and where it is added, b. It excludes `beta`.
    scale : float, optional
        The factor s; :math:`d^{-1/2}` by default.
    l2_normalise : bool
        Divide queries and keys by :math:`(x^T x + 10^{-6})^{1/2}` first.
    state : GatedState, optional
        The state of what came before, of leading axes those of k, v, gates, beta and erase together.
    key_mask : (..., n) bool array, optional
        True where there is a token. A masked one changes no state: it neither writes, fades nor erases.
    segment_ids : (..., n) integer array, optional
        Packed sequences: a run of equal ids is one segment, and segments do not see each other. The incoming state
        is the history of the first segment; the one returned belongs to the last.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs; None chooses the fastest for these arrays.

    Returns
    -------
    out : (..., n, e) array
        Outputs, of the kind, device and dtype of the inputs.
    state : GatedState
        The state after the last token, from which the next call goes on.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, StateMismatchError, BackendUnavailable
        Before any work, if an argument does not fit; where values can be looked at, if a gate is above 0.

    Warns
    -----
    UserWarning
        `beta` is below 0, or above 2 beside `l2_normalise`; outputs are not finite, for keys are too long for `beta`.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> q = k = np.ones((3, 1))
    >>> v = np.array([[8.0], [4.0], [2.0]])
    >>> out, state = ka.gated_linear_attention(q, k, v, g=np.log([0.5, 0.5, 0.5]))
    >>> out.T  # each token lets half remain of what came before
    array([[8., 8., 6.]])
    >>> out, state = ka.gated_linear_attention(q, k, v, beta=np.ones(3))
    >>> out.T  # the same key again: its value is replaced
    array([[8., 4., 2.]])
    """
    given = gated_arguments(q, k, v, g, gk, beta, erase, scale, l2_normalise, state, key_mask, segment_ids)
    if beta is not None:
        warn_of_shares(beta, key_mask, l2_normalise)
    out, after = OP.implementation(v, backend)(*given)
    if beta is not None and not l2_normalise:
        warn_of_growth(out, k, beta, q, v, g, gk)
    return out, GatedState(after)


def _look_at_logs(run: Callable[..., Any]) -> Callable[..., Any]:
    """Return the loop of a step that refuses logs of decays above 0."""

    def look_and_run(state: Any, q: Array, k: Array, v: Array, g: Array | None, gk: Array | None, *rest: Any) -> Any:
        check_logs(g, gk)
        return run(state, q, k, v, g, gk, *rest)

    return look_and_run


@traceable("gated_linear_attention_step")
@crossed_looking(_look_at_logs, "g", "gk", "beta", "erase")
def gated_linear_attention_step(
    state: GatedState | None,
    q: Array,
    k: Array,
    v: Array,
    *,
    g: Array | None = None,
    gk: Array | None = None,
    beta: Array | None = None,
    erase: tuple[Array, Array] | None = None,
    scale: float | None = None,
    l2_normalise: bool = False,
    key_mask: Array | None = None,
    backend: str | None = None,
    reuse_state: bool = False,
    out: Array | None = None,
) -> tuple[Array, GatedState]:
    r"""Take one token: :math:`S_t` and :math:`o_t = s\, S_t^T q_t` of :func:`gated_linear_attention`.

    Constant time and memory; arguments are those of that function, without the axis of tokens.

    Parameters
    ----------
    state : GatedState or None
        The state before the token; None for an empty one. What carries a state from step to step and cannot begin with
        None, as `jax.lax.scan`, begins with ``GatedState(zeros)`` of `kernattn.attention`, of zeros (..., d, e) in the
        state's dtype.
    q, k : (..., d) array
        Query and key of the token.
    v : (..., e) array
        Value of the token.
    g : (...) array, optional
        Logarithm of the decay. Constants (heads, 1) of `kernattn.gates.retention` and `lightning` are ``g[:, 0]``.
    gk : (..., d) array, optional
        Logarithms of decays of each channel.
    beta : (...) array, optional
        How much of what k reads is replaced. A step warns of none.
    erase : pair of (..., d) arrays, optional
        What is read before the decay, and where it is added.
    scale : float, optional
        The factor of the output; :math:`d^{-1/2}` by default.
    l2_normalise : bool
        Divide the query and the key by their norms first.
    key_mask : (...) bool array, optional
        True where there is a token.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs; None chooses the fastest for these arrays.
    reuse_state : bool
        Allow the new state to be written into the array of the old one, which must not be used afterwards. By default
        the old state stays as it is.
    out : (..., e) array, optional
        A C-contiguous NumPy or CuPy array, or a tensor, of the dtype of v, apart in memory from every other argument:
        the output is written into it, and it is returned. It must be None where PyTorch records a gradient.

    Returns
    -------
    out : (..., e) array
        Output of the token.
    state : GatedState
        The state after it.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, StateMismatchError, BackendUnavailable
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x, g, state = np.ones(1), np.array(np.log(0.5)), None
    >>> for value in (8.0, 4.0, 2.0):
    ...     out, state = ka.gated_linear_attention_step(state, x, x, np.array([value]), g=g)
    >>> out
    array([6.])
    """
    reuse_state = boolean("reuse_state", reuse_state)
    q, k, v = autocast(q, k, v)
    _check_token(state, q, k, v, g, gk, beta, erase, key_mask)
    factor = q.shape[-1] ** -0.5 if scale is None else finite_number("scale", scale)
    l2_normalise = boolean("l2_normalise", l2_normalise)
    before, (read, write) = None if state is None else state.s, erase or (None, None)
    if out is not None:
        lead = before.shape[:-2] if before is not None else _token_lead(k, v, g, gk, beta, read, write)
        others = {"q": q, "k": k, "v": v, "g": g, "gk": gk, "beta": beta, "erase[0]": read, "erase[1]": write}
        others |= {"key_mask": key_mask, "state": before}
        check_out(out, v, broadcast(q=tuple(q.shape[:-1]), state=tuple(lead)), others)
    run = STEP.implementation(v, backend)
    out, after = run(before, q, k, v, g, gk, beta, read, write, factor, l2_normalise, key_mask, reuse_state, out)
    return out, state if state is not None and after is before else GatedState(after)


def _token_lead(
    k: Array, v: Array, g: Array | None, gk: Array | None, beta: Array | None, read: Array | None, write: Array | None
) -> tuple[int, ...]:
    """Return the leading axes of the state of a token."""
    rows, numbers = {"k": k, "v": v, "gk": gk, "erase[0]": read, "erase[1]": write}, {"g": g, "beta": beta}
    leads = {name: tuple(x.shape[:-1]) for name, x in rows.items() if x is not None}
    return broadcast(**leads, **{name: tuple(x.shape) for name, x in numbers.items() if x is not None})


def _check_token(
    state: Any, q: Array, k: Array, v: Array, g: Array | None, gk: Array | None, beta: Array | None, erase: Any,
    key_mask: Array | None,
) -> None:  # fmt: skip
    """Raise unless a token fits: the checks of a sequence, by a shorter way for what has passed."""
    form = None
    if (state is None or type(state) is GatedState) and (erase is None or (type(erase) is tuple and len(erase) == 2)):
        before, (read, write) = None if state is None else state.s, erase or (None, None)
        form = form_of_given(q, k, v, before, g, gk, beta, read, write, key_mask)
    if form in _passed:
        check_logs(g, gk)
        return
    for name, array in {"q": q, "k": k, "v": v}.items():
        namespace(**{name: array})
        if array.ndim < 1:
            raise ShapeError(f"{name} must be (..., d); got shape {tuple(array.shape)}")
    read, write = pair_of(erase)
    _check_sizes({"q": q, "k": k, "v": v, "gk": gk, "erase[0]": read, "erase[1]": write, "g": g, "beta": beta})
    heads = tuple(k.shape[-2:-1])
    constant = heads not in ((), (1,)) and tuple(getattr(g, "shape", ())) == (*heads, 1)
    g, beta, key_mask = (
        None if x is None else _one(name, x, False) for name, x in (("g", g), ("beta", beta), ("key_mask", key_mask))
    )
    if isinstance(erase, tuple | list):
        erase = tuple(None if x is None else _one("erase", x, True) for x in erase)
    q, k, v, gk = (None if x is None else _one("gk", x, True) for x in (q, k, v, gk))
    try:
        gated_arguments(q, k, v, g, gk, beta, erase, None, False, state, key_mask, None)
    except (ShapeError, StateMismatchError) as error:
        hint = "; a step takes constants (heads, 1) without the axis of tokens: g[:, 0]" if constant else ""
        raise type(error)(f"{error}{hint}") from None
    _passed.add(form)


def _check_sizes(given: dict[str, Any]) -> None:
    """Raise where an axis of a token is empty, or has not the size of q's; sequences have an axis that no token has."""
    of_q = tuple(given["q"].shape)
    for name, x in given.items():
        if x is None:
            continue
        namespace(**{name: x})
        if 0 in x.shape:
            raise EmptyInputError(f"{name} must not be empty; got shape {tuple(x.shape)}")
        if name not in ("q", "k", "v", "g", "beta") and tuple(x.shape[-1:]) != of_q[-1:]:
            raise ShapeError(
                f"{name} must be (..., {of_q[-1]}), for a query of shape {of_q}; got shape {tuple(x.shape)}"
            )


def _one(name: str, x: Any, columns: bool) -> Array:
    """Return the numbers of a token as a sequence of one."""
    namespace(**{name: x})
    if columns and x.ndim < 1:
        raise ShapeError(f"{name} must be (..., d); got shape {tuple(x.shape)}")
    return x[..., None, :] if columns else x[..., None]


def gated_arguments(
    q: Array,
    k: Array,
    v: Array,
    g: Array | None,
    gk: Array | None,
    beta: Array | None,
    erase: tuple[Array, Array] | None,
    scale: float | None,
    l2_normalise: bool,
    state: GatedState | None,
    key_mask: Array | None,
    segment_ids: Array | None,
) -> tuple[Any, ...]:
    """Return the op's arguments."""
    q, k, v = autocast(q, k, v)
    check_arrays("qkv", q, k, v, key_mask=key_mask, segment_ids=segment_ids)
    check_one_dim(q, k)
    equal("the number of tokens", q=q.shape[-2], k=k.shape[-2])
    read, write = pair_of(erase)
    if erase is not None and beta is not None:
        raise ParameterError("erase and beta exclude each other: beta stands for erase = (beta e^g k, -k)")
    gates = {"g": g, "gk": gk, "beta": beta, "erase[0]": read, "erase[1]": write}
    leads = {"k": tuple(k.shape[:-2]), "v": tuple(v.shape[:-2])}
    leads |= check_gates(gates, q, q.shape[-1])
    lead = broadcast(**leads)
    broadcast(q=tuple(q.shape[:-2]), state=lead)
    xp, n = namespace(q=q), q.shape[-2]
    g, beta = (x if x is None or x.shape[-1] == n else xp.broadcast_to(x, (*x.shape[:-1], n)) for x in (g, beta))
    factor = q.shape[-1] ** -0.5 if scale is None else finite_number("scale", scale)
    before = None if state is None else _sums_of(state, q, v, lead)
    l2_normalise = boolean("l2_normalise", l2_normalise)
    return q, k, v, g, gk, beta, read, write, factor, l2_normalise, before, key_mask, segment_ids


def _sums_of(state: Any, q: Array, v: Array, lead: tuple[int, ...]) -> Array:
    """Return the sums of a state, which must fit."""
    if not isinstance(state, GatedState):
        kind = type(state).__name__
        hint = "; an array of a state becomes one by ka.attention.GatedState(array)" if hasattr(state, "shape") else ""
        if type(state) is tuple and len(state) == 2 and isinstance(state[1], GatedState):
            hint = "; a call returns outputs and the state: give the second"
        if kind == "GatedStretch":
            hint = "; merge_states(state, stretch) is the state after it, and GatedState(stretch.s) that from the start"
        raise DTypeError(f"state must be a GatedState, as gated_linear_attention returns it; got {kind}{hint}")
    xp = namespace(state=state.s, q=q)
    shape = (*lead, q.shape[-1], v.shape[-1])
    if tuple(state.s.shape) != shape:
        hint = axis_kept(lead, tuple(state.s.shape[:-2]), q.shape[-2])
        raise StateMismatchError(
            f"the state must have the leading axes of keys, values and gates, d and e: {shape}; "
            f"got {tuple(state.s.shape)}{hint}"
        )
    if state.s.dtype != accumulation_dtype(xp, q):
        wide = "float64" if dtype_name(q) == "float64" else "float32"
        raise DTypeError(f"the state of {dtype_name(q)} arrays is {wide}; got {dtype_name(state.s)}")
    return state.s
