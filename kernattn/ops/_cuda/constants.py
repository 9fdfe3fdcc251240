"""Constants on a device: uploaded once, and kept for as long as the host's arrays live."""

from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64
from kernattn._maps.chains import Chains
from kernattn._maps.spec import MapSpec
from kernattn.errors import BackendUnavailable
from kernattn.ops._cuda import cupy

NULL = np.uint64(0)


def upload(values: NDArray[Any]) -> Any:
    """Return constants on the current device, there for every stream: the copy is waited for, once a map."""
    if cupy.cuda.get_current_stream().is_capturing():
        raise BackendUnavailable("constants of this call are not on the device yet: make it once before the capture")
    return cupy.asarray(values, blocking=True)


_constants: WeakKeyDictionary[MapSpec, dict[tuple[int, str, str], tuple[Any, ...]]] = WeakKeyDictionary()


def of_map(spec: MapSpec, dtype: str, split: str) -> tuple[Any, ...]:
    """Return omega, its parts, row_weights and offset on the current device, cached; a null pointer for what is None.

    `split` is the C type of the two parts, or empty.
    """
    key = (int(cupy.cuda.Device().id), dtype, split)
    known = _constants.setdefault(spec, {})
    if key not in known:

        def put(x: Float64 | Chains | None) -> Any:
            return NULL if x is None else upload(np.ascontiguousarray(x, dtype=dtype))

        parts = upload(two_parts(np.asarray(spec.omega), split)) if split else NULL
        known[key] = (put(spec.omega), parts, put(spec.row_weights), put(spec.offset))
    return known[key]


def two_parts(omega: Float64, kind: str) -> NDArray[Any]:
    """Return two matrices of a C type, bit by bit, whose sum is omega up to the square of its rounding: (2, D, d)."""

    def round_to(x: NDArray[np.float32]) -> NDArray[np.uint32]:
        bits = x.view(np.uint32)
        if kind == "bf16_t":
            return (bits + np.uint32(0x7FFF) + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)  # ties to even
        return (bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)  # ties away from 0, as cvt.rna.tf32 has it

    single = np.ascontiguousarray(omega, dtype=np.float32)
    high = round_to(single)
    parts = np.stack([high, round_to(single - high.view(np.float32))])
    return (parts >> 16).astype(np.uint16) if kind == "bf16_t" else parts.view(np.float32)


_uploaded: dict[tuple[int, int, str], tuple[ref[Any], Any]] = {}


def upload_once(values: Any, dtype: str) -> Any:
    """Return a host array on the current device, cached for as long as the host array lives."""
    key = (id(values), int(cupy.cuda.Device().id), dtype)
    if key not in _uploaded:
        owner = ref(values, lambda _: _uploaded.pop(key, None))
        _uploaded[key] = (owner, upload(np.ascontiguousarray(values, dtype=dtype)))
    return _uploaded[key][1]
