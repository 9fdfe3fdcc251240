"""Checks of states: that they are some, that they fit the arrays, and that one draw made them and uses them."""

from typing import Any

import array_api_compat as compat
import numpy as np

from kernattn._arrays.namespaces import Array, check_floating, dtype_name, namespace
from kernattn._arrays.shapes import broadcast
from kernattn._runtime.checks import shown
from kernattn._sums.peaked import LinearState
from kernattn.attention._shapes import axis_kept, leading
from kernattn.errors import DTypeError, StateMismatchError
from kernattn.features import FeatureMap


def linear_state(state: Any) -> LinearState:
    """Return the state, which must be one."""
    if type(state) is not LinearState:
        check_is_state(state=state)
    return state  # type: ignore[no-any-return]


def check_is_state(**states: Any) -> None:
    """Raise unless every argument is a LinearState."""
    for name, state in states.items():
        if not isinstance(state, LinearState):
            raise DTypeError(
                f"{name} must be a LinearState, as initial_state and key_state make it; got {type(state).__name__}"
            )
        namespace(**{f"{name}.{part}": getattr(state, part) for part in ("s", "z", "peak")})
        dtypes = {check_floating(f"{name}.{part}", getattr(state, part)) for part in ("s", "z", "peak")}
        s, z, peak = (tuple(part.shape) for part in state[:3])
        if len(dtypes) > 1 or len(s) < 2 or z != s[:-1] or peak not in (z, (*z[:-1], 1)):
            raise StateMismatchError(
                f"{name} must hold s (..., M, e), z (..., M) and peak (..., M or 1) of one dtype; "
                f"got shapes {s}, {z} and {peak} of {', '.join(sorted(dtypes))}"
            )


def check_state(state: Any, phi: FeatureMap, q: Array, k: Array | None, v: Array | None, axes: int) -> None:
    """Raise unless the state was made by phi for arrays like q, from keys and values like k and v if there are any."""
    check_is_state(state=state)
    namespace(state=state.s, q=q)
    check_draws(state.fingerprint, phi.fingerprint)
    m = phi.num_features_of(q.shape[-1])
    s, z, peak = (tuple(part.shape) for part in state[:3])
    counts = (1, m) if phi.key_spec is None else (m if phi.key_spec.per_feature else 1,)
    if len(s) < 2 or s[-2] != m or z != s[:-1] or peak not in [(*s[:-2], count) for count in counts]:
        raise StateMismatchError(
            f"a state of this map is s (..., M = {m}, e), z (..., M = {m}) and peak "
            f"(..., {' or '.join(map(str, counts))}); got shapes {s}, {z} and {peak}"
        )
    if k is None or v is None:
        broadcast(q=tuple(q.shape[:-axes]), state=s[:-2])
    elif s[:-2] != (lead := leading(axes, k=k, v=v)):
        hint = axis_kept(lead, s[:-2], 1 if axes == 1 else q.shape[-2])
        raise StateMismatchError(f"the state must have the leading axes of k and v, {lead}; got s of shape {s}{hint}")
    elif s[-1] != v.shape[-1]:
        raise StateMismatchError(
            f"the state and v must have one last axis (e); got s of shape {s} and v of shape {tuple(v.shape)}"
        )
    wide = "float64" if dtype_name(q) == "float64" else "float32"
    if dtype_name(state.s) != wide:
        raise DTypeError(f"the state of {dtype_name(q)} arrays is {wide}; got {dtype_name(state.s)}")


def check_draws(made_by: Any, used_by: Any) -> None:
    """Raise where a state of one draw meets another draw; a traced fingerprint cannot be looked at."""
    made_by, used_by = known_draw(made_by), known_draw(used_by)
    if made_by is not None and used_by is not None and made_by != used_by:
        raise StateMismatchError(
            f"the state was made by the map of fingerprint {made_by}, and meets that of {used_by}: "
            "states and maps go together only when they come from one draw"
        )


def known_draw(draw: Any) -> int | None:
    """Return a fingerprint as an int, None where it is traced; after `vmap` there are many of one value."""
    if type(draw) is int:
        return draw
    if not isinstance(draw, np.ndarray | np.generic):
        if not (compat.is_jax_array(draw) or compat.is_torch_array(draw)):
            raise DTypeError(f"a state's draw must be an integer; got {type(draw).__name__}")
        try:
            draw = np.asarray(draw)
        except (TypeError, RuntimeError):  # how JAX and PyTorch say that there are no values yet
            return None
    if draw.dtype.kind not in "iu" or draw.size == 0 or np.min(draw) != np.max(draw):
        raise DTypeError(f"a state's draw must be an integer; got {shown(draw)}")
    return int(np.min(draw))
