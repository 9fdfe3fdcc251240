"""Cotangents of causal linear attention in CUDA: a walk forwards for the queries, and one backwards for the rest.

Slabs of rows are summarised and scanned first, as in `causal`: keys in their order, queries in the reverse one.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array, dtype_name, namespace
from kernattn._maps.spec import MapSpec
from kernattn._sums.cotangents import MapCotangent, in_units_of, onto_sums
from kernattn._sums.peaked import Normaliser, PeakedSum, finite
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.axes import batch, broadcast, lead_of, merged_lead
from kernattn.ops._cuda.constants import NULL
from kernattn.ops._cuda.linear import LinearCode, Slabs, alike, both_sides, cut, empty_state, linear_code, pointers
from kernattn.ops._cuda.seen_keys import mask_of_seen_keys
from kernattn.ops._cuda.sizes import REALS, pieces
from kernattn.ops.attend_vjp.gpu import over_normalisers, rows_of
from kernattn.ops.causal.gpu import causal, resident, run_numbers, slabs_for
from kernattn.ops.causal_vjp import reference
from kernattn.ops.features_vjp.pulled import Pulled, pulled_room, result_type
from kernattn.ops.key_state import gpu as summaries
from kernattn.ops.key_state_vjp.back import BackCode, Tokens, back_code, walk_code
from kernattn.ops.key_state_vjp.gpu import values_like


@dataclass(frozen=True)
class WalkBackLaunch:
    """The launch of `walk_back`, after the slabs' summaries where there is more than one slab."""

    code: BackCode
    slabs: Slabs
    grid: tuple[int]
    shared_bytes: int
    room: int  # accumulators of device memory for sums; 0: in shared memory


def launch(
    entries: int, n: int, e: int, frequencies: int, code: BackCode, learn: bool, limits: runtime.Limits
) -> WalkBackLaunch:
    """Return the launch for tokens (entries, n, d) with values (entries, n, e)."""
    m = code.linear.map
    sums = frequencies * m.parts * (e + 3)
    whole = code.shared_bytes + pieces((sums, m.accumulator))
    inside = whole <= limits.shared_bytes
    shared_bytes = whole if inside else code.shared_bytes
    together = resident(shared_bytes, limits) * limits.multiprocessors  # blocks that run at a time
    slabs = cut(n, slabs_for(entries, together), m.rows)
    blocks = entries * slabs.count
    if learn or not inside:
        blocks = min(blocks, together)
    return WalkBackLaunch(code, slabs, (blocks,), shared_bytes, 0 if inside else blocks * sums)


@dataclass(frozen=True, eq=False)
class Walks:
    """What both walks are given: queries over their normalisers, keys, and where sequences end."""

    queries: Tokens  # (*lead, n, c)
    keys: Tokens  # (*key_lead, n, c)
    segments: Any  # (*key_lead, n), or a null pointer
    lead: tuple[int, ...]
    key_lead: tuple[int, ...]
    linear: LinearCode  # of summaries
    frequencies: int

    def starts(self, how: WalkBackLaunch, start: PeakedSum | None, reverse: bool) -> PeakedSum | None:
        """Return the sums before each slab, in the order of the walk."""
        if how.slabs.count == 1:
            return start
        tokens, lead = (self.queries, self.lead) if reverse else (self.keys, self.key_lead)
        n, e = tokens.v.shape[-2:]
        entries, limits = math.prod(lead), runtime.limits()
        plan = summaries.launch(entries, n, e, self.frequencies, self.linear, how.slabs, limits, reverse)
        parts = empty_state((*lead, how.slabs.count), self.linear.map, self.frequencies, e)
        segments = self.segments if self.segments is NULL else broadcast(self.segments, lead, 1)
        before = cupy.empty_like(parts.peak)
        rows = rows_of(tokens) if reverse else tokens.rows
        summaries.summarise(plan, rows, tokens.v, tokens.arguments, tokens.mask, segments, parts, tokens.h, reverse)
        summaries.scan(plan, parts, before, start, None, segments, n, reverse)
        return parts._replace(peak=before)

    def run(self, how: WalkBackLaunch, start: PeakedSum | None, room: Pulled, read: Any, end: PeakedSum | None) -> None:
        """Launch a walk."""
        starts = self.starts(how, start, how.code.keys)
        several, m = how.slabs.count > 1, how.code.linear.map
        (n, e), q, k = self.keys.v.shape[-2:], self.queries, self.keys
        sums = cupy.empty(how.room, dtype=REALS[m.accumulator]) if how.room else NULL
        inputs = (q.rows.x, k.rows.x, q.v, k.v, q.scale, q.h, q.mask, k.scale, k.mask, self.segments)
        states = (*pointers(starts, 3), np.int32(several), *pointers(end, 3), sums)
        slabs = (np.int32(math.prod(self.lead)), np.int32(how.slabs.count), np.int64(how.slabs.rows))
        sizes = (np.int64(n), np.int32(e), *slabs, *batch(self.lead, tuple(q.rows.x.shape[:-2]), self.key_lead))
        arguments = (*inputs, *room.arguments, read, *q.arguments, *k.arguments, *states, *sizes)
        kernel = runtime.Launch(how.code.defines, how.grid, m.threads, how.shared_bytes)
        kernel.start("causal_vjp", "walk_back", *arguments)


def causal_vjp(
    q: Array, k: Array, v: Array, q_spec: MapSpec, k_spec: MapSpec, state: PeakedSum | None, key_mask: Array | None,
    segment_ids: Array | None, out: Array, normaliser: Normaliser, g: Array, after: PeakedSum | None, learn: bool,
) -> tuple[MapCotangent, MapCotangent, Array, PeakedSum | None]:  # fmt: skip
    """Leave two maps of which one kernel cannot make the features to array operations."""
    if not alike(q_spec, k_spec):
        return reference.causal_vjp(
            q, k, v, q_spec, k_spec, state, key_mask, segment_ids, out, normaliser, g, after, learn
        )
    device, dtype = runtime.limits(), dtype_name(v)
    if out.dtype != normaliser.z.dtype:  # rounded: g.v and g.o nearly cancel
        wide = v.astype(normaliser.z.dtype)
        out, _, _ = causal(q, k, wide, q_spec, k_spec, state, key_mask, segment_ids, False)
    queries, keys, map_code, _ = both_sides(q, k, q_spec, k_spec, dtype, device, True)
    (n, e), lead = g.shape[-2:], tuple(g.shape[:-2])
    key_lead = merged_lead(keys.lead, v.shape[:-2], *(lead_of(x, 1) for x in (key_mask, segment_ids)))
    linear, frequencies = linear_code(map_code, dtype, e, device), keys.frequencies
    rows = keys.rows.broadcast(key_lead)
    tokens = over_normalisers(queries, q_spec, linear, out, normaliser, g)
    runs = None if segment_ids is None else broadcast(run_numbers(segment_ids), key_lead, 1)
    mask = mask_of_seen_keys(tokens.mask, n, key_lead, key_mask, causal=True, runs=runs, end=after is not None)
    of_k = Tokens(rows, keys.arguments, broadcast(v, key_lead, 2), rows.scale, mask=mask)
    walks = Walks(tokens, of_k, NULL if runs is None else runs, lead, key_lead, linear, frequencies)
    d, accumulator = max(q.shape[-1], k.shape[-1]), map_code.accumulator

    def prepare(x: Array, like: Array, spec: MapSpec, of_keys: bool) -> tuple[WalkBackLaunch, Pulled]:
        result = result_type(like, spec, lead, accumulator)
        maps = 1 if q_spec.omega is k_spec.omega else 2
        code = walk_code(back_code(map_code, d, dtype, e, result, of_keys, device), maps, device)
        how = launch(math.prod(lead), n, e, frequencies, code, learn, device)
        return how, pulled_room(x, spec, lead, code.linear.map, result, how.grid[0], learn)

    how, of_queries = prepare(q, q, q_spec, False)
    walks.run(how, state, of_queries, NULL, None)

    how, of_keys = prepare(k, v if k.shape[:-2] == lead else k, k_spec, True)
    end = None if state is None else empty_state(lead, map_code, frequencies, e)
    read = cupy.empty((*lead, n, e), dtype=of_keys.dx.dtype)
    walks.run(how, shared_out(after, lead, key_lead), of_keys, read, end)
    before = None
    if state is not None and end is not None:
        before = in_units_of(state, onto_sums(namespace(v=v), end._replace(peak=-end.peak), state))
    dq, dk = of_queries.cotangent(q, q_spec, False, learn), of_keys.cotangent(k, k_spec, True, learn)
    return dq, dk, values_like(read, v), before


def shared_out(after: PeakedSum | None, lead: tuple[int, ...], key_lead: tuple[int, ...]) -> PeakedSum | None:
    """Return the cotangents of a state as sums that every entry of the outputs begins with: an equal share of them."""
    if after is None:
        return None
    share = math.prod(key_lead) / math.prod(lead)
    peak = -finite(namespace(s=after.s), after.peak)
    return PeakedSum(
        *(broadcast(x, lead, inner) for x, inner in ((after.s * share, 2), (after.z * share, 1), (peak, 1)))
    )
