"""Maps whose features sum to 1: what their rows are divided by, each feature's share, and the log of that."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._maps.spec import MapSpec
from kernattn._runtime.parallel import share
from kernattn.ops._numba.tiles.layout import flat, seconds_of, unwritten
from kernattn.ops._numba.tiles.packing import panels
from kernattn.ops.features.loops import write_normalisers

ROWS = 64  # whose log scales are computed at a time


def normalisers(x: Array, spec: MapSpec, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return -log sum_a e^(l_a) of the logs l of features of rows (..., n, d), (..., n); of a masked row anything."""
    return _written(x, spec, dtype, unwritten(dtype), unwritten(dtype))


def normalisers_and_shares(x: Array, spec: MapSpec, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return -log sum_a e^(l_a), (..., n), and the features' shares e^(l_a) over their sum, (..., n, M)."""
    shares = np.empty((*x.shape[:-1], spec.num_features_of(x.shape[-1])), dtype)
    return _written(x, spec, dtype, shares, unwritten(dtype)), shares


def normalised_logs(x: Array, spec: MapSpec, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the logs of features that sum to 1, (..., n, M)."""
    logs = np.empty((*x.shape[:-1], spec.num_features_of(x.shape[-1])), dtype)
    _written(x, spec, dtype, unwritten(dtype), logs)
    return logs


def _written(x: Array, spec: MapSpec, dtype: np.dtype[Any], shares: NDArray[Any], logs: NDArray[Any]) -> NDArray[Any]:
    """Return normalisers, and write what there is room for."""
    scales = np.empty(x.shape[:-1], dtype)
    parts = _packed_sums(spec, dtype)
    seconds = seconds_of(2.0 * x.size * parts[1], scales.size * spec.num_features_of(x.shape[-1]), 4)
    given = flat(x, dtype), scales.reshape(-1), shares.reshape(-1), logs.reshape(-1)
    share(partial(write_normalisers, *parts, *given, ROWS), -(-scales.size // ROWS), seconds)
    return scales


def _packed_sums(spec: MapSpec, dtype: np.dtype[Any]) -> tuple[Any, ...]:
    """Return frequencies in panels, their number, offsets and signs, as `write_normalisers` takes them, made once."""
    if ("sums", dtype) not in spec.prepared:
        omega = np.asarray(spec.omega)
        offset = flat(np.zeros(0) if spec.offset is None else spec.offset, dtype)
        both = spec.num_features_of(omega.shape[1]) > len(omega)
        spec.prepared["sums", dtype] = flat(panels(omega, dtype), dtype), len(omega), offset, both
    packed: tuple[Any, ...] = spec.prepared["sums", dtype]
    return packed
