"""Chains of Hadamard transforms by Numba: 16 rows at a time, so that sums and differences are of whole vectors."""

from functools import partial
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._maps.chains import Chains
from kernattn._maps.spec import MapSpec
from kernattn._runtime.parallel import share
from kernattn.ops._numba.codegen.registers import vector_length
from kernattn.ops._numba.tiles.layout import (
    NO_MASK,
    accumulation,
    flat,
    has_bits,
    narrow,
    room,
    rows,
    seconds_of,
    written,
)
from kernattn.ops._numba.tiles.packing import PackedMap, map_as_given, pack_with
from kernattn.ops.hadamard.loops import write_chains

_factors: WeakKeyDictionary[Chains, dict[np.dtype[Any], tuple[NDArray[Any], NDArray[Any]]]] = WeakKeyDictionary()


def hadamard(x: Array, chains: Chains) -> Array:
    return chain_features(x, chains, None)


def chain_features(x: Array, chains: Chains, spec: MapSpec | None) -> Array:
    """Return the features of a spec without frequencies of its own, (..., n, M), or the projections, (..., n, D)."""
    dtype = accumulation(x)
    *lead, dim = x.shape
    blocks, links, p = chains.diagonals.shape
    frequencies, n = len(chains), prod(lead)
    phi = _packed_map(spec, dtype, dim, frequencies)
    diagonals, norms = _factors_of(chains, dtype)
    out = room((*lead, phi.features), x.dtype if has_bits(x, dtype) else dtype)
    own, into = rows(x, dtype), written(out, dtype)
    groups = partial(write_chains, phi.arrays, dim, diagonals, links, p, norms, own, n, into, NO_MASK)
    seconds = n * seconds_of(2.0 * blocks * links * p * p.bit_length(), phi.features, dtype.itemsize)
    share(groups, -(-n // vector_length(dtype)), seconds)
    return narrow(out, x.dtype, held=False)  # infinite where 16 bits cannot say it


def _packed_map(spec: MapSpec | None, dtype: np.dtype[Any], dim: int, frequencies: int) -> PackedMap:
    """Return the map of a spec with projections from elsewhere, made once."""
    if spec is None:
        return map_as_given(dtype, frequencies)
    maps, key = spec.prepared, (dtype, dim, frequencies)
    if key not in maps:
        maps[key] = pack_with(spec, np.zeros((0, dim)), frequencies, dtype)
    phi: PackedMap = maps[key]
    return phi


def _factors_of(chains: Chains, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return diagonals and norms, flat, made once; the norms take over what every H is divided by."""
    known = _factors.setdefault(chains, {})
    if dtype not in known:
        _, links, p = chains.diagonals.shape
        known[dtype] = flat(chains.diagonals, dtype), flat(chains.norms * float(p) ** (-links / 2), dtype)
    return known[dtype]
