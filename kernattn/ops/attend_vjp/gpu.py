"""Cotangents of queries against a summary of keys in CUDA: the queries read it, and are summarised as keys are."""

import math

import numpy as np

from kernattn._arrays.namespaces import Array, dtype_name, namespace
from kernattn._maps.kinds import KINDS
from kernattn._maps.spec import MapSpec
from kernattn._sums.cotangents import MapCotangent, onto_sums
from kernattn._sums.peaked import Normaliser, PeakedSum
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.axes import batch
from kernattn.ops._cuda.constants import NULL
from kernattn.ops._cuda.inputs import MapInput
from kernattn.ops._cuda.linear import LinearCode, Side, linear_code, side
from kernattn.ops._cuda.sizes import C_TYPES, ceil_div, options
from kernattn.ops.attend.gpu import attend
from kernattn.ops.features_vjp.pulled import pulled_room, result_type
from kernattn.ops.key_state.gpu import summary
from kernattn.ops.key_state_vjp.back import Tokens, back_code, launch, read_back


def attend_vjp(
    state: PeakedSum, q: Array, q_spec: MapSpec, out: Array, normaliser: Normaliser, g: Array, learn: bool
) -> tuple[PeakedSum, MapCotangent]:
    device, dtype = runtime.limits(), dtype_name(g)
    lead, (n, e) = tuple(g.shape[:-2]), g.shape[-2:]
    queries, map_code = side(q, q_spec, dtype, device)
    linear = linear_code(map_code, dtype, e, device)
    if out.dtype != state.s.dtype:  # rounded: g.v and g.o nearly cancel
        out, _ = attend(state, q, q_spec, state.s.dtype, False)
    tokens = over_normalisers(queries, q_spec, linear, out, normaliser, g)
    result = result_type(q, q_spec, lead, map_code.accumulator)
    code = back_code(map_code, q.shape[-1], dtype, e, result, False, device)
    how = launch(math.prod(lead), n, code, learn, device)
    room = pulled_room(q, q_spec, lead, code.linear.map, result, how.grid[0], learn)
    read_back(how, tokens, state, room, NULL)
    sums = summary(
        rows_of(tokens), tokens.v, tokens.arguments, tokens.mask, linear, queries.frequencies, tokens.h
    )  # fmt: skip
    return onto_sums(namespace(q=q), sums._replace(peak=-sums.peak), state), room.cotangent(q, q_spec, False, learn)


def over_normalisers(
    queries: Side, spec: MapSpec, code: LinearCode, out: Array, normaliser: Normaliser, g: Array
) -> Tokens:
    """Return queries over their normalisers with [g, -g.o]."""
    lead, (n, e) = tuple(g.shape[:-2]), g.shape[-2:]
    real = normaliser.peak.dtype
    scale, h = (cupy.empty((*lead, n), dtype=real) for _ in range(2))
    mask = cupy.empty((*lead, n), dtype=cupy.uint8)
    g = cupy.ascontiguousarray(g)
    signed = cupy.empty_like(g) if KINDS[spec.kind].bounded else NULL
    rows = math.prod(lead) * n
    given = tuple(cupy.ascontiguousarray(x) for x in (out, g, *normaliser))
    inputs = (queries.rows.x, queries.rows.scale, given[0], g, *given[2:])
    sizes = (np.int64(n), np.int32(e), np.int64(rows), *batch(lead, queries.lead, queries.lead))
    arguments = (*inputs, scale, h, mask, signed, *queries.arguments, *sizes)
    how = runtime.Launch(asked(code, dtype_name(out)), (max(1, ceil_div(rows, code.map.warps)),), code.map.threads, 0)
    how.start("attend_vjp", "ask", *arguments)
    return Tokens(queries.rows, queries.arguments, g if signed is NULL else signed, scale, h, mask)


def asked(code: LinearCode, out: str) -> tuple[str, ...]:
    """Return how the kernel `ask` is compiled for outputs of a dtype."""
    return (*code.defines, *options(OUTPUT=C_TYPES[out]))


def rows_of(tokens: Tokens) -> MapInput:
    """Return the rows of queries with what their features are multiplied by, for every entry of the outputs."""
    rows = tokens.rows.broadcast(tuple(tokens.v.shape[:-2]))
    return MapInput(rows.x, tokens.scale, rows.per_feature, rows.dtype)
