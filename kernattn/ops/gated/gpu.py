"""Gated linear attention in CUDA: a block walks along a sequence with some columns of its state, 16 tokens at a time.

Of n tokens a head with d channels and e columns, in bytes b, one that erases costs 6 d e + 32 (d + e) operations, and
as many more 64 d as there are blocks of columns; with decays of channels, scores cost 272 d multiplications that are no
products of matrices. Memory sees (3 d + 2 e) b of a token, k and q once a block of columns from the L2 cache, and the
state once; a step's floor is its state, read and written once.

Longer calls of 16 bits go by chunks of 64 tokens (`_gated_chunks`), and this walk takes what is not finite there.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, dtype_name
from kernattn.ops._cuda import cupy, runtime
from kernattn.ops._cuda.axes import broadcast, lead_of, merged_lead
from kernattn.ops._cuda.constants import NULL, upload
from kernattn.ops._cuda.maps import operand
from kernattn.ops._cuda.sizes import (
    C_TYPES,
    REALS,
    accumulator_of,
    ceil_div,
    options,
    pieces,
    power_of_two,
    row_length,
)
from kernattn.ops._gated_chunks import gpu as chunked
from kernattn.ops.gated.reference import gated as reference
from kernattn.ops.gated.reference import segment_starts

WARPS = 4
SIZE = 16  # tokens of a chunk
COLUMNS = 32  # of a state, that a block has where tokens come one by one
FEW = 4  # tokens that do come one by one
NONE, ALONG, PAIR = range(3)  # what a token erases


@dataclass(frozen=True)
class GatedCode:
    """How the kernels are compiled."""

    input: str  # C type of q, k, v and the outputs
    operand: str
    channels: bool  # does each channel have a decay of its own?
    rule: int
    eb: int  # columns of v of a block

    @property
    def accumulator(self) -> str:
        """The C type sums run in."""
        return "double" if self.input == "double" else "float"

    @property
    def defines(self) -> tuple[str, ...]:
        """The compiler's options."""
        return options(
            INPUT=self.input, OPERAND=self.operand, SPLIT=0, WARPS=WARPS, GROUPS=WARPS, CHANNELS=self.channels,
            RULE=self.rule, EB=self.eb,
        )  # fmt: skip


@dataclass(frozen=True)
class GatedLaunch:
    """The launch of `tokens` or of `chunks`."""

    name: str
    kernel: runtime.Launch


def launch(
    entries: int,
    n: int,
    d: int,
    e: int,
    dtype: str,
    channels: bool,
    rule: int,
    limits: runtime.Limits,
    columns: int | None = None,
) -> GatedLaunch | None:
    """Return the launch for outputs (entries, n, e), or None where a state has no room in shared memory.

    A block has so many `columns` of v where these are given.
    """
    accumulator = accumulator_of(dtype)
    product = operand(dtype, limits.capability)
    for eb in widths(entries, e, limits) if columns is None else [columns]:
        code = GatedCode(C_TYPES[dtype], product, channels, rule, eb)
        if n <= FEW:
            vectors = 2 + (rule != NONE) + (rule == PAIR) + 1
            shared = pieces(
                (d * COLUMNS, accumulator), (vectors * d, accumulator), (2 * WARPS * 32, accumulator), (2, accumulator)
            )
            width = COLUMNS
        else:
            shared, width = chunk_bytes(code, d), eb
        if shared <= limits.shared_bytes:
            kernel = runtime.Launch(code.defines, (entries * ceil_div(e, width),), 32 * WARPS, shared)
            return GatedLaunch("tokens" if n <= FEW else "chunks", kernel)
    return None


def widths(entries: int, e: int, limits: runtime.Limits) -> list[int]:
    """Return how many columns a block may have: the most that leave each multiprocessor a block or two, then fewer."""
    widest = power_of_two(e, 16, 64)
    wanted = next((eb for eb in (64, 32) if entries * ceil_div(e, eb) >= 2 * limits.multiprocessors), 16)
    return [eb for eb in (64, 32, 16) if eb <= min(wanted, widest)]


def chunk_bytes(code: GatedCode, d: int) -> int:
    """Return the shared memory of `chunks`: what the kernel carves."""
    accumulator, product = code.accumulator, code.operand
    writers = 2 if code.rule == PAIR else 1
    apart = code.rule == PAIR or (code.rule == ALONG and code.channels)
    wide, depth = ceil_div(d, 16) * 16, SIZE * writers
    v_row, shows = row_length(product, code.eb), product != accumulator
    return pieces(
        ((1 + apart + writers) * SIZE * row_length(product, wide), product),
        (SIZE * wide * code.channels, accumulator),
        (wide * code.channels, accumulator),
        (SIZE, accumulator),
        (SIZE * SIZE, accumulator),
        *[(SIZE, accumulator)] * 3,
        *[(SIZE, "float")] * 2,
        (SIZE * row_length(product, depth), product),
        (SIZE * depth, accumulator),
        (SIZE * (code.eb + 8), accumulator),
        *[(depth * v_row, product)] * 2,
        (wide * (code.eb + 8), accumulator),
        (wide * v_row * shows, product),
    )


def gated(
    q: Array, k: Array, v: Array, g: Array | None, gk: Array | None, beta: Array | None, read: Array | None,
    write: Array | None, scale: float, l2_normalise: bool, state: Array | None, key_mask: Array | None,
    segment_ids: Array | None,
) -> tuple[Array, Array]:  # fmt: skip
    given = q, k, v, g, gk, beta, read, write, scale, l2_normalise, state, key_mask, segment_ids
    made = run(None, None, *given)
    return reference(*given) if made is None else made


def run(out: Array | None, after: Array | None, *given: Any) -> tuple[Array, Array] | None:
    """Return the outputs and the state, in these arrays where they fit, or None where a state has no room."""
    q, v = given[0], given[2]
    work = work_of(*given)
    (n, d), e = q.shape[-2:], v.shape[-1]
    sizes = len(work.table), n, d, e, dtype_name(v), work.channels
    fast = None if work.rule == PAIR else chunked.launch(*sizes, work.rule == ALONG, runtime.limits())
    how = launch(*sizes, work.rule, runtime.limits(), 16 if fast else None)  # each 16 columns stop on their own
    if how is None:
        return None
    states = (*work.lead, d, e)
    if after is None or after.shape != states or work.out_lead != work.lead or not after.flags.c_contiguous:
        after = cupy.empty(states, dtype=REALS[accumulator_of(dtype_name(v))])
    out = cupy.empty((*work.out_lead, n, e), dtype=v.dtype) if out is None else out
    resumed = () if how.name == "tokens" else (NULL, NULL) if fast is None else fast.start(work.arguments, out, after)
    how.kernel.start("gated", how.name, *work.arguments, *resumed, out, after)
    return out, after


def numbers(x: Array | None, dtype: Any) -> Any:
    """Return an array as contiguous numbers of a dtype, a null pointer for None."""
    return NULL if x is None else cupy.ascontiguousarray(x.astype(dtype, copy=False))


class Given(NamedTuple):
    """What a call reads, as the kernels take it."""

    arguments: tuple[Any, ...]
    table: NDArray[np.int32]
    lead: tuple[int, ...]  # of states
    out_lead: tuple[int, ...]
    channels: bool
    rule: int


def work_of(
    q: Array, k: Array, v: Array, g: Array | None, gk: Array | None, beta: Array | None, read: Array | None,
    write: Array | None, scale: float, l2_normalise: bool, state: Array | None, key_mask: Array | None,
    segment_ids: Array | None,
) -> Given:  # fmt: skip
    """Return the arrays that the kernels read, and which of them each reads."""
    real = REALS[accumulator_of(dtype_name(v))]
    (n, d), e = q.shape[-2:], v.shape[-1]
    logs = None if g is None else g if gk is None else gk.astype(real) + g.astype(real)[..., None]
    logs = gk if logs is None else logs
    channels = gk is not None
    pair = () if read is None or write is None else merged_lead(lead_of(read, 2), lead_of(write, 2))
    own = (lead_of(k, 2), lead_of(v, 2), lead_of(logs, 2 if channels else 1), lead_of(beta, 1), pair)
    lead = merged_lead(*own)
    out_lead = merged_lead(lead_of(q, 2), lead)
    table, places = _places(int(cupy.cuda.Device().id), lead_of(q, 2), *own)
    both = (NULL if x is None else numbers(broadcast(x, pair, 2), real) for x in (read, write))
    mask = NULL if key_mask is None else broadcast(key_mask, lead, 1).view(cupy.uint8)
    fresh = NULL if segment_ids is None else broadcast(segment_starts(cupy, segment_ids), lead, 1).view(cupy.uint8)
    before = NULL if state is None else broadcast(state, lead, 2)
    rows = (cupy.ascontiguousarray(x) for x in (q, k, v))
    sizes = (real(scale), np.int32(l2_normalise), np.int64(n), np.int32(d), np.int32(e))
    arguments = (*rows, numbers(logs, real), numbers(beta, real), *both, mask, fresh, before, places, *sizes)
    rule = PAIR if read is not None else NONE if beta is None else ALONG
    return Given(arguments, table, lead, out_lead, channels, rule)


@lru_cache(maxsize=64)
def _places(device: int, q: tuple[int, ...], *own: tuple[int, ...]) -> tuple[NDArray[np.int32], Any]:
    """Return which entries of q, k, v, logs, beta and the pair each output reads, its state, and whether it keeps it.

    The second is the table on the device, which stays there.
    """
    lead = merged_lead(*own)
    out = merged_lead(q, lead)
    columns = [np.broadcast_to(np.arange(int(np.prod(x))).reshape(x), out).reshape(-1) for x in (q, *own, lead)]
    kept = np.full(columns[-1].shape, -1)
    _, first = np.unique(columns[-1], return_index=True)
    kept[first] = columns[-1][first]
    table = np.ascontiguousarray(np.stack([*columns, kept], axis=-1), dtype=np.int32)
    return table, upload(table)
