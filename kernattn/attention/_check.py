"""Checks of attention's arguments, before any work: each error names what was given and what is allowed."""

from typing import Any

import array_api_compat as compat
import numpy as np

from kernattn._arrays.forms import Forms, form_of
from kernattn._arrays.namespaces import (
    INTEGERS,
    Array,
    check_alike,
    dtype_name,
    may_share_memory,
    namespace,
    placement,
    records_gradient,
    why_not_plain,
)
from kernattn._arrays.shapes import broadcast
from kernattn._runtime.checks import instance_of
from kernattn._sums.peaked import LinearState
from kernattn.attention._check_states import check_state
from kernattn.attention._shapes import check_row, equal, leading
from kernattn.errors import (
    DTypeError,
    EmptyInputError,
    MixedLibraryError,
    ParameterError,
    ShapeError,
)
from kernattn.features import FeatureMap, LearntMap

_passed = Forms()
_maps: set[type] = set()


def feature_map(phi: Any) -> FeatureMap:
    """Return phi, which must be a feature map."""
    if type(phi) not in _maps:
        instance_of("phi", phi, FeatureMap, "such as kernattn.features.elu1() or what kernattn.random_features returns")
        _maps.add(type(phi))
    return phi  # type: ignore[no-any-return]


def _draw(phi: FeatureMap) -> Any:
    """Return a key of a map and the arrays that it takes: its draw, and the library of numbers given to it."""
    if type(phi) is LearntMap:
        return phi.fingerprint, type(next(iter(phi.numbers.values())))
    return phi.fingerprint


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
    draw = None if phi is None else _draw(phi)
    if state is key_mask is segment_ids is key_bias is None:
        form = form_of((names, draw, tokens), *arrays)
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
            check_state(state, phi, q, k, v, 2 if tokens else 1)
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
        form = form_of((_draw(phi), made_by), q, k, v, s, z, peak)
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
    dtype = check_alike(arrays, extra)
    form = "(..., n, d)" if tokens else "(..., d)"
    for name, array in arrays.items():
        if array.ndim < axes:
            raise ShapeError(f"{name} must be {form}; got shape {tuple(array.shape)}")
        if 0 in array.shape:
            raise EmptyInputError(f"{name} must not be empty; got shape {tuple(array.shape)}")
    keys = "x" if "x" in arrays else "k"
    if tokens and keys in arrays and "v" in arrays:
        equal("the number of tokens", **{name: arrays[name].shape[-2] for name in (keys, "v")})
    lead = leading(axes, **{name: arrays[name] for name in (keys, "v") if name in arrays})
    if "q" in arrays:
        broadcast(q=tuple(arrays["q"].shape[:-axes]), keys=lead)
    if "key_mask" in extra:
        check_row("key_mask", extra["key_mask"], (*lead, *arrays[keys].shape[-axes:-1]), tokens, ("bool",))
    if "segment_ids" in extra:
        check_row("segment_ids", extra["segment_ids"], (*lead, *arrays[keys].shape[-axes:-1]), tokens, INTEGERS)
    if "key_bias" in extra:
        check_row("key_bias", extra["key_bias"], (*lead, arrays[keys].shape[-2]), tokens, (dtype,))


def check_map(phi: FeatureMap, q: Array | None = None, k: Array | None = None, like: Array | None = None) -> None:
    """Raise unless the map is one for queries q, keys k, or keys like an array."""
    for name, array, dim in (("q", q, phi.query_dim), ("k", k, phi.key_dim), ("like", like, phi.key_dim)):
        if array is None:
            continue
        phi._check_library(name, array)
        if (spec := phi.query_spec if name == "q" else phi.key_spec) is not None:
            spec.check_dtype(name, array)
            if dim is None:
                spec.check(array.shape[-1])
        if dim is not None and array.shape[-1] != dim:
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
    equal("the last axis (d)", q=q.shape[-1], k=k.shape[-1])


def check_out(
    out: Any, v: Array, lead: tuple[int, ...], others: dict[str, Array | None], phi: FeatureMap | None = None
) -> None:
    """Raise unless `out` can hold the output of a step whose other arguments have passed."""
    if not (isinstance(out, np.ndarray) or compat.is_cupy_array(out) or compat.is_torch_array(out)):
        raise DTypeError(
            f"out must be an array of NumPy, CuPy or PyTorch, which can be written to; "
            f"got {type(out).__module__}.{type(out).__name__}"
        )
    namespace(out=out, v=v)
    if placement(out) != placement(v):
        raise MixedLibraryError(f"out must be on the device of v, {placement(v)}; got {placement(out)}")
    shape = (*lead, v.shape[-1])
    if tuple(out.shape) != shape:
        raise ShapeError(f"out must have the shape of the output, {shape}; got {tuple(out.shape)}")
    if dtype_name(out) != dtype_name(v):
        raise DTypeError(f"out must have the dtype of v, {dtype_name(v)}; got {dtype_name(out)}")
    why = why_not_plain(out)
    if why is not None:
        raise ParameterError(f"out must be C-contiguous and writeable; got {why}")
    learnt = phi.numbers if isinstance(phi, LearntMap) else {}
    for name, array in {"out": out, **others, **learnt}.items():
        if array is not None and records_gradient(array):
            raise ParameterError(
                f"out must be None where a gradient is recorded; got {name} that requires one "
                "(under torch.no_grad() none is recorded)"
            )
    for name, array in others.items():
        if array is not None and may_share_memory(out, array):
            raise ParameterError(f"out must be apart from every other argument; its memory overlaps that of {name}")


def check_causal(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    state: LinearState | None,
    key_mask: Array | None,
    segment_ids: Array | None,
) -> None:
    """Raise unless the arguments of causal attention fit each other."""
    check_arrays("qkv", q, k, v, phi=feature_map(phi), state=state, key_mask=key_mask, segment_ids=segment_ids)
    if q.shape[-2] != k.shape[-2]:
        raise ShapeError(
            "causal attention takes as many queries as keys (what came before belongs in `state`); "
            f"got q {tuple(q.shape)} and k {tuple(k.shape)}"
        )
