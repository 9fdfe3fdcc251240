"""Queries against a summary of keys by Numba: features and product while a chunk lies in cache."""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._runtime.parallel import share
from kernattn._sums.peaked import Normaliser, PeakedSum
from kernattn.ops._numba.tiles.form_cache import keep_while_small
from kernattn.ops._numba.tiles.heads import heads
from kernattn.ops._numba.tiles.layout import flat, room, seconds_of, unwritten, written
from kernattn.ops.attend.loops import answer
from kernattn.ops.features.sides import queries

CHUNK = 64


def attend(
    state: PeakedSum, q: Array | ScaledFeatures, q_spec: MapSpec | None, dtype: Any, normaliser: bool
) -> tuple[Array, Normaliser | None]:
    s, z, peak = state
    e, wide = s.shape[-1], s.dtype
    phi, x, given, q_lead, n = queries(q, q_spec, wide, normaliser)
    how = _plan_for(q_lead, s.shape, n, phi.dim * phi.projects, wide.itemsize)
    out = room(how.out, dtype)
    answers, row_z = (written(out, wide), unwritten(wide), unwritten(wide)), None
    if normaliser:
        row_z = Normaliser(np.empty(out.shape[:-1], wide), np.empty(out.shape[:-1], wide))
        answers = answers[0], row_z.peak.reshape(-1), row_z.z.reshape(-1)
    sums = flat(s, wide), flat(z, wide), flat(peak, wide)
    blocks = partial(answer, phi.arrays, e, x, given, sums, how.reads, n, answers, how.chunk)
    share(blocks, how.pieces, how.seconds)
    return out, row_z


class _Plan(NamedTuple):
    """What follows from shapes alone: made once for all calls of one form."""

    out: tuple[int, ...]
    reads: NDArray[np.int64]  # (R, 3) heads of q, of the state and of out that meet
    chunk: int
    pieces: int  # as many chunks of queries
    seconds: float


@keep_while_small
def _plan_for(q: tuple[int, ...], state: tuple[int, ...], n: int, products: int, itemsize: int) -> _Plan:
    """Return the plan for n queries of leading axes q, projected in so many products a feature."""
    *lead, features, e = state
    who, chunk = heads(q, tuple(lead), tuple(lead)), min(CHUNK, n)
    reads = np.stack([who.q, who.states, who.out], axis=-1)
    seconds = seconds_of(2.0 * features * (e + products), features, itemsize)
    return _Plan((*who.out_lead, n, e), reads, chunk, len(reads) * -(-n // chunk), len(reads) * n * seconds)
