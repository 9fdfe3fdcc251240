"""A window of exact attention and features before it: whole sequences, pieces of them, and tokens."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.autocast import cast_once
from kernattn._arrays.door import crossed_at_once
from kernattn._arrays.graphs import traceable
from kernattn._arrays.namespaces import Array, namespace, without_flags, zero_masked, zeros
from kernattn._arrays.replay import Extreme, Witness
from kernattn._plans.plan import Plan
from kernattn._runtime.checks import check_room, whole_number
from kernattn._runtime.elsewhere import told_keywords
from kernattn._sums.peaked import PeakedSum
from kernattn.attention._check import check_arrays, check_causal, feature_map
from kernattn.attention._lowering import sums_of
from kernattn.attention._mechanisms.hybrid import (
    bias_of,
    numbers_of,
    op_arguments,
    run_segments,
    scale_of,
    segment_runs,
    window_of_any_length,
)
from kernattn.attention._mechanisms.window_states import (
    WindowState,
    check_window_state,
    host_constant,
    is_sorted,
    order_of,
    put_in_order,
    roll,
    window_of,
)
from kernattn.attention._shapes import leading
from kernattn.attention.patterns import local
from kernattn.features import FeatureMap, LearntMap
from kernattn.features._learnt import part_from_scale
from kernattn.ops.dispatch import check_backend, missing
from kernattn.ops.window_step import OP as STEP


@traceable("window_attention")
@told_keywords
@cast_once
@without_flags
def window_attention(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    window: int,
    *,
    state: WindowState | None = None,
    key_mask: Array | None = None,
    segment_ids: Array | None = None,
    near_bias: float | Array | None = None,
    backend: str | None = None,
) -> tuple[Array, WindowState]:
    r"""Return causal attention with exact weights on the last w tokens and those of features before, and the state.

    :math:`o_i = \sum_{j \le i} w_{ij} v_j / \sum_{j \le i} w_{ij}`, where :math:`w_{ij} = e^{s q_i^T k_j + b}` for
    :math:`j > i - w`, and :math:`\phi(q_i)^T \phi(k_j)` before: the layer of LoLCATs, Zhang et al. (2025), with one
    normaliser. A key enters the sums when it leaves the window, so that nothing is ever taken off; a window of 0 is
    linear attention, and one of all tokens exact attention. What stands after a token does not change its output.

    Parameters
    ----------
    q : (..., n, d) array
        Queries, of dtype float16, bfloat16, float32 or float64.
    k : (..., n, d) array
        Keys. Leading axes broadcast against those of q, as in `linear_attention`.
    v : (..., n, e) array
        Values.
    phi : FeatureMap
        A map of the softmax kernel, whose scale is s; :math:`d^{-1/2}` for a map of none.
    window : int
        How many tokens have exact weights, a query's own among them.
    state : WindowState, optional
        The state of what came before, of leading axes those of k and v.
    key_mask : (..., n) bool array, optional
        True where there is a token. Others are left out, as though the sequence had none there: they take no place
        in the window, and their outputs are 0. Sequences of a batch may thus be padded on either side.
    segment_ids : (..., n) integer array, optional
        Packed sequences: a run of equal ids is one segment, and segments do not see each other. The incoming state is
        the history of the first, the one returned belongs to the last. The ids must be known numbers.
    near_bias : float or (...) array, optional
        The bias b of exact scores, 0 by default: an array of leading axes of the outputs, such as one number a head,
        can be learnt.
    backend : {None, "reference", "cpu"}
        Which implementation runs; None chooses the fastest for these arrays.

    Returns
    -------
    out : (..., n, e) array
        Outputs, of the kind, device and dtype of the inputs. A row whose normaliser is exactly 0 is 0.
    state : WindowState
        The state after the last token, from which the next call goes on.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, StateMismatchError, BackendUnavailable
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 256, 4))
    >>> phi = ka.random_features(ka.kernels.Softmax(), dim=4, num_features=64, rng=0)
    >>> out, state = ka.attention.window_attention(q, k, v, phi, 32)
    >>> again, state = ka.attention.window_attention(q[:100], k[:100], v[:100], phi, 32)
    >>> rest, state = ka.attention.window_attention(q[100:], k[100:], v[100:], phi, 32, state=state)
    >>> bool(np.allclose(out, np.concatenate([again, rest])))
    True
    """
    given, arrangement = prepare_window(q, k, v, phi, window, state, key_mask, segment_ids, near_bias)
    out, sums = run_segments(given, arrangement.runs, backend)
    return arrangement.finish(out), arrangement.state_after(given, sums, phi.fingerprint)


@traceable("window_attention_step")
@crossed_at_once
@cast_once
def window_attention_step(
    state: WindowState,
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    *,
    key_mask: Array | None = None,
    near_bias: float | Array | None = None,
    backend: str | None = None,
) -> tuple[Array, WindowState]:
    r"""Take one token: the oldest of the window enters the sums, and the token the window.

    Time and memory are the same for every token. The token's output is that of `window_attention`, to rounding.

    Parameters
    ----------
    state : WindowState
        The state before the token.
    q : (..., d) array
        Query of the token.
    k : (..., d) array
        Key of the token. Leading axes broadcast against those of q.
    v : (..., e) array
        Value of the token.
    phi : FeatureMap
        The map that made the state.
    key_mask : (...) bool array, optional
        True where there is a token. Elsewhere the state stays, and the output is 0.
    near_bias : float or (...) array, optional
        The bias of exact scores.
    backend : {None, "reference", "cpu"}
        Which implementation runs; None chooses the fastest for these arrays.

    Returns
    -------
    out : (..., e) array
        Output of the token.
    state : WindowState
        The state after it.

    Raises
    ------
    ShapeError, DTypeError, MixedLibraryError, ParameterError, StateMismatchError, BackendUnavailable
        Before any work, if an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi, x = ka.features.elu1(), np.zeros(2)
    >>> state = ka.attention.initial_window_state(phi, 2, (), value_dim=1, like=x)
    >>> for value in (0.0, 1.0, 5.0):  # exact weights are 1, those of features 2
    ...     out, state = ka.attention.window_attention_step(state, x, x, np.array([value]), phi)
    >>> out
    array([1.5])
    """
    check_arrays("qkv", q, k, v, phi=feature_map(phi), key_mask=key_mask, tokens=False)
    window = window_of(state)
    stepped = _step_in_loops(state, q, k, v, phi, window, key_mask, near_bias, backend)
    if stepped is not None:
        return stepped
    mask = None if key_mask is None else key_mask[..., None]
    q, k, v = (x[..., None, :] for x in (q, k, v))
    out, after = window_attention(
        q, k, v, phi, window, state=state, key_mask=mask, near_bias=near_bias, backend=backend
    )
    return out[..., 0, :], after


def _step_in_loops(
    state: WindowState,
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    window: int,
    key_mask: Array | None,
    near_bias: Any,
    backend: str | Witness | None,
) -> tuple[Array, WindowState] | None:
    """Return the results of `window_attention_step` by the loop of a token; None of arrays that it does not take."""
    if not isinstance(backend, Witness):
        check_backend(backend)
        if backend not in (None, "cpu") or missing("cpu") is not None:
            return None
    specs = phi.query_spec, phi.key_spec
    if window == 0 or isinstance(phi, LearntMap) or specs[0] is None or specs[1] is None:
        return None
    if specs[0].per_feature != specs[1].per_feature:
        return None
    rows = [x[..., None, :] for x in (q, k, v)]
    bias = bias_of(near_bias, *rows)
    given = (q, k, v, *state[:-1], *(x for x in (key_mask, bias) if x is not None))
    if not all(isinstance(x, np.ndarray) or STEP.choose(x) == "cpu" for x in given):
        return None
    check_window_state(state, phi, window, *rows)
    arguments = (state.k, state.v, state.present, q, k, v, *specs, scale_of(phi, q.shape[-1]), key_mask, bias)
    try:
        out, sums, keys, values, present = STEP.implementation(v, backend)(sums_of(state.linear), *arguments)
    except Extreme:
        return None
    return out, WindowState(sums.s, sums.z, sums.peak, keys, values, present, state.fingerprint)


class Arrangement(NamedTuple):
    """How the tokens of a call were put before the op took them."""

    window: int
    mask: Array | None  # of the tokens as they were given
    order: Array | None  # of the queries, where some are masked amid others
    runs: Any  # of segments, on the host, or None
    whole: Array | None  # the order of keys, those of the state before them, where there is one of queries
    keys: Array  # as they are remembered, in that order

    def finish(self, out: Array) -> Array:
        """Return outputs as the tokens were given, 0 where one is masked."""
        if self.mask is None:
            return out
        xp = namespace(out=out)
        if self.order is not None:
            out = put_in_order(out, xp.argsort(self.order, axis=-1))
        return xp.where(self.mask[..., None], out, xp.zeros_like(out))

    def state_after(self, given: tuple[Any, ...], sums: PeakedSum, draw: int) -> WindowState:
        """Return the state after the op's tokens."""
        k, v, mask = self.keys, given[2], given[10]
        xp = namespace(k=k)
        if self.runs is not None:
            last = host_constant(xp, self.runs == self.runs[..., -1:], k)
            mask = last if mask is None else mask & last
        return WindowState(*sums, *roll(xp, self.window, k, v, mask), draw)


def prepare_window(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    window: int,
    state: WindowState | None,
    key_mask: Array | None,
    segment_ids: Array | None,
    near_bias: Any,
) -> tuple[tuple[Any, ...], Arrangement]:
    """Return the op's arguments, and how tokens were put in order for them."""
    window = whole_number("window", window)
    check_causal(q, k, v, phi, None, key_mask, segment_ids)
    check_room("the state's window", (*leading(2, k=k, v=v), window, k.shape[-1] + v.shape[-1]), 4)
    bias = bias_of(near_bias, q, k, v)
    xp, n, mask, order, whole, tail = namespace(q=q), k.shape[-2], key_mask, None, None, None
    ids = None if segment_ids is None else segment_runs(segment_ids)
    if state is not None:
        check_window_state(state, phi, window, q, k, v)
        lead = tuple(state.present.shape[:-1])
        k, v = (xp.concat([own, _wide(xp, x, lead, 2)], axis=-2) for own, x in ((state.k, k), (state.v, v)))
        if mask is not None or not _all_there(state.present):
            here = zeros(xp, (*lead, n), xp.int32, k) == 0 if mask is None else _wide(xp, mask, lead, 1)
            mask = xp.concat([state.present, here], axis=-1)
        if ids is not None:
            ids = np.concatenate([np.repeat(ids[..., :1], window, axis=-1), ids], axis=-1)
    if ids is not None and mask is not None:
        ids, tail = np.broadcast_arrays(ids, _ends_without_tokens(ids, numbers_of(mask)))
    if key_mask is not None and mask is not None and not is_sorted(mask):
        last = None if tail is None else host_constant(xp, tail, k)
        whole, order = order_of(mask, last), order_of(key_mask, None if last is None else last[..., -n:])
        q, k, v = put_in_order(q, order), put_in_order(k, whole), put_in_order(v, whole)
        mask = put_in_order(mask[..., None], whole)[..., 0]
        if ids is not None:
            ids, tail = (np.take_along_axis(x, numbers_of(whole), axis=-1) for x in (ids, tail))
    if ids is not None:
        if mask is not None:
            ids = _without_masked(ids, numbers_of(mask), tail, state is not None and not window)
        segment_ids = host_constant(xp, ids, k)
    plan = window_plan(window, n, k.shape[-2])
    linear = None if state is None else state.linear
    if mask is not None and part_from_scale(phi)[1] is not None:
        q = zero_masked(q, mask[..., k.shape[-2] - n :])
    given = op_arguments(q, k, v, phi, plan, plan, True, linear, mask, segment_ids, bias)
    return given, Arrangement(window, key_mask, order, ids, whole, k)


def _all_there(present: Array) -> bool:
    """Are all tokens of a window there? Only NumPy's arrays are asked, which costs next to nothing."""
    return isinstance(present, np.ndarray) and bool(present.all())


def _wide(xp: Any, x: Array, lead: tuple[int, ...], axes: int) -> Array:
    return xp.broadcast_to(x, (*lead, *x.shape[x.ndim - axes :]))


def _ends_without_tokens(ids: Any, mask: Any) -> Any:
    """Return True for tokens of a last segment, of ids (..., l), that a mask hides all of: a state forgets what was.

    They stand last, so that sums end with theirs, which are empty. The history goes on in the first segment.
    """
    last = ids == ids[..., -1:]
    return last & (ids[..., -1:] != ids[..., :1]) & ~np.any(mask & last, axis=-1, keepdims=True)


def _without_masked(ids: Any, mask: Any, tail: Any, history: bool) -> Any:
    """Return ids (..., l), those of masked tokens, which stand first, the id of the first that is there.

    Theirs is 0, the first segment's, where a history comes without tokens of its own, and is that segment's.
    """
    ids, mask, tail = np.broadcast_arrays(ids, mask, tail)
    first = np.take_along_axis(ids, np.argmax(mask, axis=-1)[..., None], axis=-1)
    return np.where(mask | tail, ids, np.zeros_like(first) if history else first)


def window_plan(window: int, n: int, length: int) -> Plan:
    """Return the plan of the last n of so many tokens that see the window behind them."""
    if type(n) is not int or type(length) is not int:
        return window_of_any_length(window)
    return local(window - 1, 0).plan(n, length, causal=True) if window else Plan("parts", n, length, ((),))
