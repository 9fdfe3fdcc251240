"""What attention with a window remembers, and the arrangement of tokens of which some are masked."""

from __future__ import annotations

from typing import Any, NamedTuple

from kernattn._arrays.bridge import autocast
from kernattn._arrays.graphs import traceable
from kernattn._arrays.namespaces import Array, constant, dtype_name, indices, namespace, zeros
from kernattn._arrays.shapes import broadcast
from kernattn._runtime.checks import check_room, whole_number
from kernattn._sums.peaked import LinearState, no_item
from kernattn.attention._check_states import check_draws, check_state
from kernattn.attention._shapes import leading
from kernattn.attention._states import initial_state
from kernattn.errors import DTypeError, StateMismatchError
from kernattn.features import FeatureMap


class WindowState(NamedTuple):
    r"""What attention with a window remembers: the last w tokens as they are, and the sums of those before.

    s, z and peak are those of a `LinearState`. All of it has one size, however many tokens there were.
    """

    s: Array  # (..., M, e)
    z: Array  # (..., M)
    peak: Array  # (..., M) or (..., 1)
    k: Array  # (..., w, d), the last of which is the last token's
    v: Array  # (..., w, e)
    present: Array  # (..., w) bool: False for what there was not yet, which stands first
    fingerprint: int  # of the map that made the sums

    def __getitem__(self, index: Any) -> Any:
        return no_item(self, index)

    @property
    def linear(self) -> LinearState:
        """The sums of the tokens before the window."""
        return LinearState(self.s, self.z, self.peak, self.fingerprint)


@traceable("initial_window_state")
def initial_window_state(
    phi: FeatureMap, window: int, batch_shape: tuple[int, ...], value_dim: int, like: Array
) -> WindowState:
    """Return the state of `window_attention` that has seen nothing.

    Parameters
    ----------
    phi : FeatureMap
        The feature map.
    window : int
        How many tokens the window has.
    batch_shape : tuple of int
        Leading axes of k and v.
    value_dim : int
        Dimension e of the values.
    like : (..., d) array
        An array of the keys' kind, device, dtype and last axis.

    Returns
    -------
    WindowState
        The empty state.

    Raises
    ------
    DTypeError, ShapeError, ParameterError
        If an argument does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = ka.features.elu1()
    >>> state = ka.attention.initial_window_state(phi, 64, (8,), value_dim=4, like=np.zeros(16))
    >>> state.k.shape, state.v.shape, state.s.shape
    ((8, 64, 16), (8, 64, 4), (8, 16, 4))
    """
    (like,) = autocast(like)
    window = whole_number("window", window)
    s, z, peak, draw = initial_state(phi, batch_shape, value_dim, like)
    xp, lead, d = namespace(like=like), tuple(s.shape[:-2]), like.shape[-1]
    check_room("the window", (*lead, window, d + s.shape[-1]), 4)
    k, v = (zeros(xp, (*lead, window, size), like.dtype, like) for size in (d, s.shape[-1]))
    return WindowState(s, z, peak, k, v, zeros(xp, (*lead, window), xp.int32, like) != 0, draw)


def window_of(state: Any) -> int:
    """Return how many tokens a state's window has."""
    if not isinstance(state, WindowState):
        raise DTypeError(f"state must be a WindowState, as window_attention returns it; got {type(state).__name__}")
    namespace(**{"state.k": state.k})
    shape = tuple(state.k.shape)
    if len(shape) < 2:
        raise StateMismatchError(f"state.k must be (..., w, d); got shape {shape}")
    return int(shape[-2])


def check_window_state(state: Any, phi: FeatureMap, window: int, q: Array, k: Array, v: Array) -> None:
    """Raise unless a state is one of this window, map, and of arrays like these."""
    window_of(state)
    check_draws(state.fingerprint, phi.fingerprint)
    check_state(state.linear, phi, q, k, v, 2)
    lead = leading(2, k=k, v=v)
    shapes = {"k": (*lead, window, k.shape[-1]), "v": (*lead, window, v.shape[-1]), "present": (*lead, window)}
    for name, shape in shapes.items():
        x, wanted = getattr(state, name), "bool" if name == "present" else dtype_name(k)
        namespace(**{"q": q, f"state.{name}": x})
        if tuple(x.shape) != shape:
            raise StateMismatchError(f"state.{name} must be {shape}; got {tuple(x.shape)}")
        if dtype_name(x) != wanted:
            raise DTypeError(f"state.{name} must have dtype {wanted}; got {dtype_name(x)}")


def roll(xp: Any, window: int, k: Array, v: Array, mask: Array | None) -> tuple[Array, Array, Array]:
    """Return the last tokens of k (..., l, d), v and a mask, with absent ones before them where there are too few.

    A number of tokens that is a symbol is not compared: absent ones stand before them all, and what is too much is cut.
    """
    lead, length = leading(2, k=k, v=v), k.shape[-2]
    kept = min(window, length) if type(length) is int else length
    absent = window - kept if type(length) is int else window
    first = length - kept
    mask = zeros(xp, (kept,), xp.int32, k) == 0 if mask is None else mask[..., first:]
    rows = [xp.broadcast_to(x[..., first:, :], (*lead, kept, x.shape[-1])) for x in (k, v)]
    rows.append(xp.broadcast_to(mask, (*lead, kept))[..., None])
    missing = (zeros(xp, (*lead, absent, x.shape[-1]), x.dtype, x) for x in rows)
    last_k, last_v, present = (xp.concat(pair, axis=-2) for pair in zip(missing, rows, strict=True))  # no views
    if type(length) is not int:
        last_k, last_v, present = (x[..., length:, :] for x in (last_k, last_v, present))
    return last_k, last_v, present[..., 0]


def is_sorted(mask: Array) -> bool:
    """Do all that a mask hides stand first? One that is traced cannot tell: no."""
    if type(mask).__name__ in ("FakeTensor", "FunctionalTensor"):
        return False
    xp = namespace(mask=mask)
    try:
        return not bool(xp.any(mask[..., :-1] & ~mask[..., 1:]))
    except (TypeError, RuntimeError):
        return False


def order_of(mask: Array, last: Array | None = None) -> Array:
    """Return the order in which what a mask (..., l) hides stands first, some of it last, and all else as it did."""
    xp = namespace(mask=mask)
    place = xp.astype(mask, xp.int32)
    return xp.argsort(place if last is None else place + 2 * xp.astype(last, xp.int32), axis=-1, stable=True)


def put_in_order(x: Array, order: Array) -> Array:
    """Return rows x (..., l, c) in an order (..., l) whose leading axes broadcast against theirs."""
    order = order[..., None]
    ones = (1,) * max(0, x.ndim - order.ndim)
    more = (1,) * max(0, order.ndim - x.ndim)
    xp = namespace(x=x)
    order, x = xp.reshape(order, (*ones, *order.shape)), xp.reshape(x, (*more, *x.shape))
    lead = broadcast(x=tuple(x.shape[:-2]), order=tuple(order.shape[:-2]))
    x = xp.broadcast_to(x, (*lead, *x.shape[-2:]))
    order = xp.broadcast_to(order, (*lead, order.shape[-2], x.shape[-1]))
    return xp.take_along_axis(x, order, axis=-2)


def host_constant(xp: Any, values: Any, like: Array) -> Array:
    """Return host integers or booleans beside an array."""
    return indices(xp, values, like) if values.dtype.kind == "i" else constant(xp, values, xp.bool, like)
