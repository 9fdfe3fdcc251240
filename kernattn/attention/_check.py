"""Checks of attention's arguments, before any work: each error names what was given and what is allowed."""

from __future__ import annotations

from typing import Any

import array_api_compat as compat
import numpy as np

from kernattn._array import (
    Array,
    check_floating,
    dtype_name,
    may_share_memory,
    namespace,
    placement,
    why_not_plain,
)
from kernattn._check import instance_of, shown
from kernattn._forms import Forms, form_of
from kernattn.errors import (
    DTypeError,
    EmptyInputError,
    MixedLibraryError,
    ParameterError,
    ShapeError,
    StateMismatchError,
)
from kernattn.features import FeatureMap
from kernattn.ops.peaked import LinearState

__all__ = [
    "check_arrays",
    "check_beside",
    "check_draws",
    "check_is_state",
    "check_map",
    "check_one_dim",
    "check_out",
    "check_token",
    "feature_map",
    "leading",
    "linear_state",
]

_passed = Forms()
_maps: set[type] = set()


def feature_map(phi: Any) -> FeatureMap:
    """Return phi, which must be a feature map."""
    if type(phi) not in _maps:
        instance_of("phi", phi, FeatureMap, "such as kernattn.features.elu1() or what kernattn.random_features returns")
        _maps.add(type(phi))
    return phi  # type: ignore[no-any-return]


def linear_state(state: Any) -> LinearState:
    """Return the state, which must be one."""
    if type(state) is not LinearState:
        check_is_state(state=state)
    return state  # type: ignore[no-any-return]


def check_arrays(
    names: str,
    *arrays: Array,
    phi: FeatureMap | None = None,
    state: Any = None,
    key_mask: Array | None = None,
    segment_ids: Array | None = None,
    key_bias: Array | None = None,
    tokens: bool = True,
) -> None:
    """Raise unless the arrays named of q, k, v, and those of rows, fit each other; without `tokens`, (..., d).

    Tokens that are queries and keys alike are x. They must fit the map, if there is one, and a state that it made.
    """
    draw = None if phi is None else phi.fingerprint
    if state is key_mask is segment_ids is key_bias is None:
        form = form_of((names, draw), *arrays)
    else:
        form = _form((names, draw, tokens), arrays, state, key_mask, segment_ids, key_bias)
    if form in _passed:
        return
    given = dict(zip(names, arrays, strict=True))
    _check_arrays(given, {"key_mask": key_mask, "segment_ids": segment_ids, "key_bias": key_bias}, tokens)
    q, k, v = (given.get(name) for name in "qkv")
    if phi is None:
        if q is not None and k is not None:
            check_one_dim(q, k)
    else:
        check_map(phi, q, k)
        if state is not None:
            _check_state(state, phi, q, k, v, 2 if tokens else 1)
    _passed.add(form)


def check_beside(q: Array, name: str, array: Array) -> None:
    """Raise unless an array of weights is of the library, dtype and device of q."""
    namespace(q=q, **{name: array})
    if dtype_name(array) != dtype_name(q):
        raise DTypeError(f"{name} must have the dtype of q, {dtype_name(q)}; got {dtype_name(array)}")
    if placement(array) != placement(q):
        raise MixedLibraryError(f"{name} must be on the device of q, {placement(q)}; got {placement(array)}")


def check_token(state: LinearState, q: Array, k: Array, v: Array, phi: FeatureMap, key_mask: Array | None) -> None:
    """Raise unless a token fits the map and its state: `check_arrays`, by a shorter way for what has passed."""
    s, z, peak, made_by = state
    form = None
    if key_mask is None and type(made_by) is int:
        form = form_of((phi.fingerprint, made_by), q, k, v, s, z, peak)
    if form not in _passed:
        check_arrays("qkv", q, k, v, phi=phi, state=state, key_mask=key_mask, tokens=False)
        _passed.add(form)


def _form(
    key: tuple[Any, ...],
    arrays: tuple[Array, ...],
    state: Any,
    key_mask: Array | None,
    segment_ids: Array | None,
    key_bias: Array | None,
) -> tuple[Any, ...] | None:
    """Return the form of arrays and of what else there is; None of a state that may be none, or is traced."""
    made_by = None
    if state is not None:
        if type(state) is not LinearState or type(state.fingerprint) is not int:
            return None
        s, z, peak, made_by = state
        arrays = *arrays, s, z, peak
    if key_mask is not None:
        arrays = *arrays, key_mask
    if segment_ids is not None:
        arrays = *arrays, segment_ids
    if key_bias is not None:
        arrays = *arrays, key_bias
    return form_of((*key, made_by, key_mask is None, segment_ids is None, key_bias is None), *arrays)


def _check_arrays(arrays: dict[str, Array], rows: dict[str, Array | None], tokens: bool) -> None:
    extra = {name: array for name, array in rows.items() if array is not None}
    axes = 2 if tokens else 1
    namespace(**arrays, **extra)
    dtypes = {name: check_floating(name, array) for name, array in arrays.items()}
    if len(set(dtypes.values())) > 1:
        raise DTypeError(f"all of {', '.join(arrays)} must have one dtype, nothing is promoted silently; got {dtypes}")
    devices = {name: placement(array).get("device") for name, array in (arrays | extra).items()}
    first = next(iter(devices.values()))
    if any(device != first for device in devices.values()):
        raise MixedLibraryError(f"all arrays of one call must be on one device; got {devices}")
    form = "(..., n, d)" if tokens else "(..., d)"
    for name, array in arrays.items():
        if array.ndim < axes:
            raise ShapeError(f"{name} must be {form}; got shape {tuple(array.shape)}")
        if 0 in array.shape:
            raise EmptyInputError(f"{name} must not be empty; got shape {tuple(array.shape)}")
    keys = "x" if "x" in arrays else "k"
    if tokens and keys in arrays and "v" in arrays:
        _equal("the number of tokens", **{name: arrays[name].shape[-2] for name in (keys, "v")})
    lead = leading(axes, **{name: arrays[name] for name in (keys, "v") if name in arrays})
    if "q" in arrays:
        _broadcast(q=tuple(arrays["q"].shape[:-axes]), keys=lead)
    if "key_mask" in extra:
        _check_row("key_mask", extra["key_mask"], (*lead, *arrays[keys].shape[-axes:-1]), tokens, ("bool",))
    if "segment_ids" in extra:
        integers = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
        _check_row("segment_ids", extra["segment_ids"], (*lead, *arrays[keys].shape[-axes:-1]), tokens, integers)
    if "key_bias" in extra:
        _check_row("key_bias", extra["key_bias"], (*lead, arrays[keys].shape[-2]), tokens, (dtypes["q"],))


def check_map(phi: FeatureMap, q: Array | None = None, k: Array | None = None, like: Array | None = None) -> None:
    """Raise unless the map is one for queries q, keys k, or keys like an array."""
    for name, array, dim in (("q", q, phi.query_dim), ("k", k, phi.key_dim), ("like", like, phi.key_dim)):
        if array is not None and (spec := phi.query_spec if name == "q" else phi.key_spec) is not None:
            spec.check_dtype(name, array)
            if dim is None:
                spec.check(array.shape[-1])
        if array is not None and dim is not None and array.shape[-1] != dim:
            raise ShapeError(f"{name} must have d = {dim} columns, as phi was drawn; got shape {tuple(array.shape)}")
    if q is not None and k is not None and None in (phi.query_dim, phi.key_dim):
        check_one_dim(q, k)
    if phi.query_spec is not phi.key_spec:
        _check_sides(phi)


def _check_sides(phi: FeatureMap) -> None:
    """Raise unless the specs of queries and keys make as many features."""
    queries, keys = phi.query_spec, phi.key_spec
    if queries is None or keys is None:
        return
    counts = [spec.num_features_of(dim or 1) for spec, dim in ((queries, phi.query_dim), (keys, phi.key_dim))]
    if counts[0] != counts[1]:
        raise ParameterError(f"query_spec and key_spec must have as many features; got {counts[0]} and {counts[1]}")


def check_one_dim(q: Array, k: Array) -> None:
    """Raise unless queries and keys have one last axis."""
    _equal("the last axis (d)", q=q.shape[-1], k=k.shape[-1])


def _check_state(state: Any, phi: FeatureMap, q: Array, k: Array | None, v: Array | None, axes: int) -> None:
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
        _broadcast(q=tuple(q.shape[:-axes]), state=s[:-2])
    elif s[:-2] != (lead := leading(axes, k=k, v=v)):
        raise StateMismatchError(f"the state must have the leading axes of k and v, {lead}; got s of shape {s}")
    elif s[-1] != v.shape[-1]:
        raise StateMismatchError(
            f"the state and v must have one last axis (e); got s of shape {s} and v of shape {tuple(v.shape)}"
        )
    wide = "float64" if dtype_name(q) == "float64" else "float32"
    if dtype_name(state.s) != wide:
        raise DTypeError(f"the state of {dtype_name(q)} arrays is {wide}; got {dtype_name(state.s)}")


def check_out(out: Any, state: LinearState, q: Array, k: Array, v: Array, key_mask: Array | None) -> None:
    """Raise unless `out` can hold the output of a step whose other arguments have passed."""
    if not (isinstance(out, np.ndarray) or compat.is_cupy_array(out) or compat.is_torch_array(out)):
        raise DTypeError(
            f"out must be an array of NumPy, CuPy or PyTorch, which can be written to; "
            f"got {type(out).__module__}.{type(out).__name__}"
        )
    namespace(out=out, v=v)
    if placement(out) != placement(v):
        raise MixedLibraryError(f"out must be on the device of v, {placement(v)}; got {placement(out)}")
    shape = (*leading(1, q=q, k=k, v=v), v.shape[-1])
    if tuple(out.shape) != shape:
        raise ShapeError(f"out must have the shape of the output, {shape}; got {tuple(out.shape)}")
    if dtype_name(out) != dtype_name(v):
        raise DTypeError(f"out must have the dtype of v, {dtype_name(v)}; got {dtype_name(out)}")
    why = why_not_plain(out)
    if why is not None:
        raise ParameterError(f"out must be C-contiguous and writeable; got {why}")
    others = {"q": q, "k": k, "v": v, "key_mask": key_mask, "s": state.s, "z": state.z, "peak": state.peak}
    for name, array in others.items():
        if array is not None and may_share_memory(out, array):
            raise ParameterError(f"out must be apart from every other argument; its memory overlaps that of {name}")


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


def check_draws(made_by: Any, used_by: Any) -> None:
    """Raise where a state of one draw meets another draw; a traced fingerprint cannot be looked at."""
    made_by, used_by = _known(made_by), _known(used_by)
    if made_by is not None and used_by is not None and made_by != used_by:
        raise StateMismatchError(
            f"the state was made by the map of fingerprint {made_by}, and meets that of {used_by}: "
            "states and maps go together only when they come from one draw"
        )


def _known(draw: Any) -> int | None:
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
    if draw.dtype.kind not in "iu" or np.min(draw) != np.max(draw):
        raise DTypeError(f"a state's draw must be an integer; got {shown(draw)}")
    return int(np.min(draw))


def leading(axes: int, **arrays: Array) -> tuple[int, ...]:
    """Return the broadcast leading axes of the arrays."""
    return _broadcast(**{name: tuple(array.shape[:-axes]) for name, array in arrays.items()})


def _broadcast(**leads: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*leads.values())
    except (ValueError, RuntimeError):  # the latter of more axes than NumPy broadcasts
        raise ShapeError(f"the leading axes must broadcast; got {leads}") from None


def _equal(what: str, **sizes: int) -> None:
    if len(set(sizes.values())) > 1:
        raise ShapeError(f"{what} must be the same for {' and '.join(sizes)}; got {sizes}")


def _check_row(name: str, array: Array, shape: tuple[int, ...], tokens: bool, dtypes: tuple[str, ...]) -> None:
    if dtype_name(array) not in dtypes:
        raise DTypeError(f"{name} must have dtype {' or '.join(dtypes)}; got {dtype_name(array)}")
    if array.ndim > len(shape) or any(
        size not in (1, full) for size, full in zip(array.shape[::-1], shape[::-1], strict=False)
    ):
        raise ShapeError(f"{name} must broadcast to {shape}, the keys' axes but the last; got {tuple(array.shape)}")
    if tokens and (array.ndim < 1 or array.shape[-1] != shape[-1]):
        raise ShapeError(f"{name} must have {shape[-1]} entries on its last axis; got shape {tuple(array.shape)}")
