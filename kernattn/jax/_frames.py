"""Decode steps as calls of XLA's own: its foreign function interface reaches the compiled loop without Python."""

import ctypes
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kernattn._arrays.namespaces import dtype_name, largest
from kernattn._maps.spec import MapSpec
from kernattn._runtime.fork import import_whole
from kernattn._sums.peaked import PeakedSum
from kernattn.ops.dispatch import missing
from kernattn.ops.records import RECORDS

IN_PLACE = {10: 1, 11: 2, 12: 3}
"""Which operand, of the state, lies where which result does; XLA copies one that is still needed."""


def in_frames(q_spec: MapSpec, k_spec: MapSpec, learns: bool) -> Callable[..., Any] | None:
    """Return the outputs of a step as JAX traces them; None where a callback has to do it.

    That is where numbers of the map are known at run time alone, log scales of rows come from elsewhere, or this
    version of JAX has another interface.
    """
    if learns or not (q_spec.direct and k_spec.direct) or missing("cpu") is not None or not _is_known():
        return None
    return partial(_run_staged, q_spec, k_spec)


def _run_staged(q_spec: MapSpec, k_spec: MapSpec, *leaves: Any) -> tuple[Any, ...]:
    """Return the output and the sums after the token, to be computed when XLA calls."""
    given = dict(zip((leaf.name for leaf in RECORDS["step"].leaves), leaves, strict=True))
    state = PeakedSum(*(given[f"state_{part}"] for part in PeakedSum._fields))
    q, k, v, mask = (given[name] for name in ("q", "k", "v", "key_mask"))
    wide, who = (
        state.s.dtype,
        import_whole("kernattn.ops._numba.tiles.heads").heads(q.shape[:-1], k.shape[:-1], v.shape[:-1]),
    )
    packed = import_whole("kernattn.ops._numba.tiles.packing").pack_map
    (q_numbers, q_constants), (k_numbers, k_constants) = (
        packed(spec, np.dtype(wide), x.shape[-1]).arrays for spec, x in ((q_spec, q), (k_spec, k))
    )
    admits = jnp.zeros(0, bool) if mask is None else jnp.broadcast_to(mask, who.lead)
    form = jax.ShapeDtypeStruct((*who.out_lead, v.shape[-1]), wide)
    call = jax.ffi.ffi_call(
        _target(dtype_name(state.s)), (form, *(_form(x) for x in state)), input_output_aliases=IN_PLACE
    )
    out, *after = call(
        _as_int32(q_numbers), q_constants, _as_int32(k_numbers), k_constants,
        *(x.astype(wide) for x in (q, k, v)), jnp.zeros(0, wide), admits, _as_int32(who.table), *state,
    )  # fmt: skip
    return _narrow(out, v.dtype), *after


def _form(x: Any) -> Any:
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _as_int32(integers: Any) -> Any:
    """Return integers of 64 bits as twice as many of 32, which JAX always has."""
    return integers.view(np.int32)


def _narrow(out: Any, dtype: Any) -> Any:
    """Return outputs in a dtype, held to what it can say; infinity and NaN stay."""
    if out.dtype == dtype:
        return out
    limit = largest(dtype)
    return jnp.where(jnp.isfinite(out), jnp.clip(out, -limit, limit), out).astype(dtype)


@cache
def _target(dtype: str) -> str:
    """Return the name by which XLA knows the handler of a dtype, after it was registered."""
    name, address = f"kernattn_step_{dtype}", import_whole("kernattn.ops.step.frame_loops").handler(np.dtype(dtype))
    jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(ctypes.c_void_p(address)), platform="cpu")
    return name


@cache
def _is_known() -> bool:
    """Is the interface of this JAX the one whose frames the handler reads?"""
    return bool(_version() == import_whole("kernattn.ops.step.frame_loops").VERSION)


def _version() -> tuple[int, ...] | None:
    """Return the version of XLA's interface that JAX's headers state."""
    try:
        text = (Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h").read_text(encoding="utf-8")
    except (AttributeError, OSError):
        return None
    versions = [re.search(rf"#define XLA_FFI_API_{part} (\d+)", text) for part in ("MAJOR", "MINOR")]
    return tuple(int(match[1]) for match in versions if match is not None)
