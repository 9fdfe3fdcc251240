"""Queries against a summary of keys by Numba: features and product while a chunk lies in cache."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._runtime.parallel import share
from kernattn._sums.peaked import Normaliser, PeakedSum
from kernattn.ops._numba.tiles.form_cache import kept_while_small
from kernattn.ops._numba.tiles.heads import heads
from kernattn.ops._numba.tiles.layout import FLOPS_PER_SECOND, SECONDS_PER_FEATURE, flat, narrowed, room, unwritten
from kernattn.ops.attend.loops import answer
from kernattn.ops.features.sides import queries

CHUNK = 64


def attend(
    state: PeakedSum, q: Array | ScaledFeatures, q_spec: MapSpec | None, dtype: Any, normaliser: bool
) -> tuple[Array, Normaliser | None]:
    """Return the output of each query, and its normaliser where it is wanted."""
    s, z, peak = state
    e, wide = s.shape[-1], s.dtype
    phi, x, given, q_lead, n = queries(q, q_spec, wide, normaliser)
    how = _plan_for(q_lead, s.shape, n, phi.dim * phi.projects, wide.itemsize)
    chunk, reads = how.chunk, how.reads
    out = room(how.out, wide)
    answers, found = (out.reshape(-1), unwritten(wide), unwritten(wide)), None
    if normaliser:
        found = Normaliser(np.empty_like(out[..., 0]), np.empty_like(out[..., 0]))
        answers = answers[0], found.peak.reshape(-1), found.z.reshape(-1)
    sums = flat(s, wide), flat(z, wide), flat(peak, wide)

    def blocks(low: int, high: int) -> None:
        answer(phi.arrays, e, x, given, sums, reads, n, answers, chunk, low, high)

    share(blocks, how.pieces, how.seconds)
    return narrowed(out, dtype), found


class _Plan(NamedTuple):
    """What shapes tell: it is made once for all calls of one form."""

    out: tuple[int, ...]
    reads: NDArray[np.int64]  # (R, 3) heads of q, of the state and of out that meet
    chunk: int
    pieces: int  # as many chunks of queries
    seconds: float


@kept_while_small
def _plan_for(q: tuple[int, ...], state: tuple[int, ...], n: int, products: int, itemsize: int) -> _Plan:
    """Return the plan for n queries of leading axes q, projected in so many products a feature."""
    *lead, features, e = state
    (reads, out_lead), chunk = _reads(q, tuple(lead)), min(CHUNK, n)
    seconds = 2.0 * features * (e + products) / FLOPS_PER_SECOND + features * SECONDS_PER_FEATURE
    return _Plan((*out_lead, n, e), reads, chunk, len(reads) * -(-n // chunk), len(reads) * n * seconds * itemsize / 4)


@kept_while_small
def _reads(q: tuple[int, ...], state: tuple[int, ...]) -> tuple[NDArray[np.int64], tuple[int, ...]]:
    """Return the heads of q, of the state and of out that meet, (R, 3), and the leading axes of out."""
    who = heads(q, state, state)
    states = np.repeat(np.arange(len(who.k)), who.reads.shape[1])
    return np.stack([who.q, states, who.out], axis=-1), who.out_lead
