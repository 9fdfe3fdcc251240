"""What `scatterbrain_attention` and `window_attention` hand to the op that joins exact weights with features."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np
from array_api_compat import is_array_api_obj as is_array
from array_api_compat import is_cupy_array, is_torch_array

from kernattn._arrays.bridge import library_of
from kernattn._arrays.namespaces import (
    FLOATS,
    Array,
    accumulation_dtype,
    constant,
    dtype_name,
    namespace,
    placement,
    zero_masked,
)
from kernattn._arrays.plain import plain
from kernattn._arrays.shapes import broadcast
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._plans.parts import kept
from kernattn._plans.plan import Plan
from kernattn._plans.streams import streams_of
from kernattn._runtime.checks import finite_number
from kernattn._sums.peaked import LinearState, PeakedSum
from kernattn.attention._check import check_arrays, feature_map
from kernattn.attention._lowering import lowered, sums_of
from kernattn.attention._shapes import leading
from kernattn.errors import DTypeError, MixedLibraryError, ParameterError, ShapeError
from kernattn.features import FeatureMap, LearntMap
from kernattn.features._learnt import part_from_scale, times
from kernattn.kernels import Softmax
from kernattn.ops.hybrid import OP


def scale_of(phi: FeatureMap, dim: int) -> float:
    """Return the factor of exact scores: the map's kernel's, d^(-1/2) of a map that has none."""
    kernel = getattr(phi.base if isinstance(phi, LearntMap) else phi, "kernel", None)
    scale = kernel.scale if isinstance(kernel, Softmax) else None
    return float(dim**-0.5 if scale is None else scale)


def with_scale(phi: FeatureMap, q: Array, k: Array, key_mask: Array | None) -> tuple[FeatureMap, Array, Array]:
    """Return a map without its learnt scale, and rows multiplied in its place: exact scores have it, too."""
    rest, ratio = part_from_scale(phi)
    return (rest, q, k) if ratio is None else (rest, times(q, ratio), times(zero_masked(k, key_mask), ratio))


def bias_of(near_bias: Any, q: Array, k: Array, v: Array) -> Array | None:
    """Return the bias of exact scores as an array whose axes are leading axes of the outputs; None for 0."""
    if near_bias is None:
        return None
    xp = namespace(q=q)
    if isinstance(near_bias, np.generic) or not is_array(near_bias):
        return constant(xp, np.asarray(finite_number("near_bias", near_bias)), accumulation_dtype(xp, q), q)
    namespace(q=q, near_bias=near_bias)
    near_bias = plain(near_bias)
    if dtype_name(near_bias) not in FLOATS:
        raise DTypeError(f"near_bias must be of floats; got {dtype_name(near_bias)}")
    if placement(near_bias) != placement(q):
        raise MixedLibraryError(f"near_bias must be on the device of q; got {placement(near_bias)}")
    lead = leading(2, q=q, k=k, v=v)
    if near_bias.ndim > len(lead) or broadcast(near_bias=tuple(near_bias.shape), outputs=lead) != lead:
        raise ShapeError(f"near_bias must broadcast to {lead}, the leading axes; got {tuple(near_bias.shape)}")
    return near_bias


def op_arguments(
    q: Array,
    k: Array,
    v: Array,
    phi: FeatureMap,
    plan: Plan,
    within: Plan,
    causal: bool,
    state: LinearState | None,
    key_mask: Array | None,
    segment_ids: Array | None,
    near_bias: Array | None,
) -> tuple[Any, ...]:
    """Return the op's arguments but `keep`: features stand in for the specs of maps that have none.

    Where the map's scale is learnt, rows are multiplied in its place.
    """
    phi, q, k = with_scale(phi, q, k, key_mask)
    queries, keys, q_spec, k_spec = lowered(phi, q, k, key_mask)
    specs: list[MapSpec | ScaledFeatures] = []
    seen = k if keys is k or isinstance(keys, ScaledFeatures) else zero_masked(k, key_mask)
    for x, rows, spec, features in ((q, queries, q_spec, phi.scaled_query), (seen, keys, k_spec, phi.scaled_key)):
        if isinstance(rows, ScaledFeatures):
            specs.append(rows)
        else:
            assert spec is not None
            specs.append(spec if rows is x else features(x))
    before: PeakedSum | None = None if state is None else sums_of(state)
    scale = scale_of(phi, q.shape[-1])
    return q, k, v, *specs, scale, plan, within, causal, before, key_mask, segment_ids, near_bias


@cache
def window_of_any_length(window: int) -> Plan:
    """Return the plan of rows that see the window behind them, where lengths are symbols of a graph.

    Only graphs know it, by its name, and make that of the lengths that they meet.
    """
    return Plan("window", window)


@lru_cache(maxsize=32)
def _nothing_exact(n: int) -> Plan:
    """Return the plan of n tokens on which no weight is exact."""
    return Plan("parts", n, n, ((),))


def packed_arguments(
    q: Array, k: Array, v: Array, phi: FeatureMap, key_mask: Array | None, segment_ids: Array
) -> tuple[Any, ...]:
    """Return the op's arguments of packed sequences, in each of which all tokens see all, by features alone.

    Without an exact part no plan follows from the ids, which may be traced.
    """
    check_arrays("qkv", q, k, v, phi=feature_map(phi), key_mask=key_mask, segment_ids=segment_ids)
    n = q.shape[-2]
    if n != k.shape[-2]:
        raise ShapeError(f"with segment_ids there are as many queries as keys; got n = {n}, l = {k.shape[-2]}")
    plan = _nothing_exact(n) if type(n) is int else window_of_any_length(0)
    return op_arguments(q, k, v, phi, plan, plan, False, None, key_mask, segment_ids, None)


def run_op(given: tuple[Any, ...], backend: str | None) -> tuple[Array, PeakedSum]:
    """Return the outputs and the sums after them."""
    if backend is None and any(_is_signed(spec) for spec in given[3:5]):
        backend = "reference"
    out, _, after = OP.implementation(given[2], backend)(*given, False)
    return out, after


def run_segments(given: tuple[Any, ...], runs: Any, backend: str | None) -> tuple[Array, PeakedSum]:
    """Return the outputs and the sums of packed sequences, the runs (..., l) of each apart where they differ."""
    axis = _differing(runs)
    if axis is None:
        return run_op(within_segments(given, runs), backend)
    parts = [
        run_segments(_at(given, axis, i), runs.take([i], axis=axis - 1), backend) for i in range(runs.shape[axis - 1])
    ]
    xp = namespace(v=given[2])
    outs, sums = zip(*parts, strict=True)
    after = (xp.concat(x, axis=axis - axes) for x, axes in zip(zip(*sums, strict=True), (2, 1, 1), strict=True))
    return xp.concat(outs, axis=axis - 2), PeakedSum(*after)


def within_segments(given: tuple[Any, ...], runs: Any) -> tuple[Any, ...]:
    """Return arguments of the op with a plan for the exact part in which rows see their own run (..., l)."""
    if runs is None:
        return given
    if _differing(runs) is not None:
        raise ParameterError("segment_ids must be alike for all sequences here; call once for each, or through PyTorch")
    within = _narrowed_once(given[6], runs.reshape(-1, runs.shape[-1])[0].tobytes())
    return (*given[:7], within, *given[8:])


def _differing(runs: Any) -> int | None:
    """Return a leading axis, counted from the last of them, along which runs differ."""
    if runs is None:
        return None
    axes = range(1 - runs.ndim, 0)
    return next((axis for axis in axes if np.any(runs != runs.take([0], axis=axis - 1))), None)


def _at(given: tuple[Any, ...], axis: int, i: int) -> tuple[Any, ...]:
    """Return arguments at index i of a leading axis, counted from the last of them."""
    axes = (2, 2, 2, 2, 2, 0, 0, 0, 0, (2, 1, 1), 1, 1, 0)
    return tuple(_entry(x, axis, i, count) for x, count in zip(given, axes, strict=True))


def _entry(x: Any, axis: int, i: int, axes: Any) -> Any:
    if isinstance(x, PeakedSum | ScaledFeatures):
        counts = axes if isinstance(axes, tuple) else (axes,) * len(x)
        return type(x)(*(_entry(part, axis, i, count) for part, count in zip(x, counts, strict=True)))
    if not is_array(x) or x.ndim + axis - axes < 0 or x.shape[axis - axes] == 1:
        return x
    return x[(..., slice(i, i + 1), *(slice(None),) * (axes - axis - 1))]


def _is_signed(spec: Any) -> bool:
    """Has a map values beside a log scale for each feature, which no loop takes?"""
    return isinstance(spec, ScaledFeatures) and spec.values.shape[-1] > 1 and spec.log_scale.shape[-1] > 1


def numbers_of(x: Any) -> Any:
    """Return the integers or booleans of an array on the host; whatever an array that is traced raises."""
    if is_cupy_array(x):
        x = x.get()
    elif is_torch_array(x):
        try:
            x = x.cpu().numpy()
        except RuntimeError:  # amid derivatives of torch.func, no tensor lends its memory
            library: Any = library_of(x)
            if type(x) not in library.kinds:
                raise
            x = x.tolist()
    return np.asarray(x)


def segment_runs(segment_ids: Array | None) -> Any:
    """Return the numbers of runs of equal ids on the host, (..., l)."""
    try:
        ids = numbers_of(segment_ids)
    except Exception:
        raise ParameterError(
            "segment_ids must be known numbers, for they decide which keys rows see; got ids that are traced"
        ) from None
    return np.cumsum(np.diff(ids, axis=-1, prepend=ids[..., :1]) != 0, axis=-1, dtype=np.int64)


@lru_cache(maxsize=32)
def _narrowed_once(plan: Plan, runs: bytes) -> Plan:
    """Return a plan in which rows see their own run alone."""
    of, ahead = np.frombuffer(runs, np.int64), plan.length - plan.n
    heads = tuple(
        tuple(
            part
            for each in parts
            if len((part := kept(each, lambda rows, tokens: of[rows + ahead] == of[tokens])).visits)
        )
        for parts in plan.heads
    )
    return Plan("parts", plan.n, plan.length, heads)


def check_segments(plan: Plan, causal: bool) -> None:
    """Raise unless a plan's rows are such that segments can be told apart in its streams."""
    streams = streams_of(plan, causal, False)
    if streams is None or not streams.adjoins:
        raise ParameterError(
            "segment_ids go with a pattern whose rows see one stretch of tokens each, about their own place, as "
            "patterns.local; got a pattern that is another"
        )
