"""Chains of Hadamard transforms in CUDA: rows stay in shared memory from the first diagonal to the feature."""

import math
from dataclasses import dataclass, replace

import numpy as np

from kernattn._arrays.namespaces import Array, dtype_name
from kernattn._maps.chains import Chains
from kernattn._maps.spec import MapSpec
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.constants import NULL, upload_once
from kernattn.ops._cuda.maps import MapCode, map_arguments, map_code
from kernattn.ops._cuda.sizes import REALS, ceil_div, pieces

WARPS = 8
LINE = 2048  # numbers that a block holds, where a row has fewer


@dataclass(frozen=True)
class HadamardLaunch:
    """One launch of the kernel `hadamard`."""

    code: MapCode
    group: int  # rows of a block
    blocks: int
    shared_bytes: int
    room: int  # numbers of device memory; 0: the rows are in shared memory


def launch(rows: int, p: int, blocks: int, code: MapCode, limits: runtime.Limits) -> HadamardLaunch:
    """Return the launch for `rows` rows of p numbers."""
    group = min(rows, max(1, LINE // p))
    blocks *= ceil_div(rows, group)
    logs, lines = (group, code.accumulator), (group * p, code.accumulator)
    inside = pieces(logs, lines)
    if inside <= limits.shared_bytes:
        return HadamardLaunch(code, group, blocks, inside, 0)
    return HadamardLaunch(code, group, blocks, pieces(logs), blocks * group * p)


def hadamard(x: Array, chains: Chains) -> Array:
    return chain_features(x, chains, None)


def chain_features(x: Array, chains: Chains, spec: MapSpec | None) -> Array:
    """Return the features of a spec without frequencies of its own, (..., n, M), or the projections, (..., n, D)."""
    device = runtime.limits()
    x = cupy.ascontiguousarray(x)
    rows, d = math.prod(x.shape[:-1]), x.shape[-1]
    links, p = chains.diagonals.shape[1:]
    frequencies = len(chains)
    code = map_code(dtype_name(x), spec, spec is not None and spec.per_feature, d, device)
    if spec is None:
        code = replace(code, kind="values")
    code = replace(code, operand=code.accumulator, project=False, split=False, db=16, warps=WARPS)
    phi = cupy.empty((*x.shape[:-1], frequencies * code.parts), dtype=x.dtype)
    if phi.size == 0:
        return phi
    how = launch(rows, p, ceil_div(frequencies, p), code, device)
    real = REALS[code.accumulator]
    name = np.dtype(real).name
    room = cupy.empty(how.room, dtype=real) if how.room else NULL
    _, _, *constants, _, _ = map_arguments(spec, code, d)
    sizes = (np.int32(frequencies), np.int32(d), np.int32(p), np.int32(links), np.int32(how.group))
    factors = (upload_once(chains.diagonals, name), upload_once(chains.norms, name))
    kernel = runtime.Launch(code.defines, (how.blocks,), code.threads, how.shared_bytes)
    kernel.start("hadamard", "hadamard", x, phi, *factors, *constants, *sizes, room, np.int64(rows))
    return phi
