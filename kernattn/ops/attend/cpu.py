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
from kernattn.ops.attend.matrix_loops import answer_tiles
from kernattn.ops.features.sides import queries
from kernattn.ops.key_state.matrix import FASTER, Answers, operands_for, patch

CHUNK = 64


def attend(
    state: PeakedSum, q: Array | ScaledFeatures, q_spec: MapSpec | None, dtype: Any, normaliser: bool
) -> tuple[Array, Normaliser | None]:
    s, z, peak = state
    e, wide = s.shape[-1], s.dtype
    side = queries(q, q_spec, wide, normaliser)
    phi, x, given, q_lead, n = side
    how = _plan_for(q_lead, s.shape, n, phi.dim * phi.projects, wide.itemsize)
    out = room(how.out, dtype)
    answers, row_z = (written(out, wide), unwritten(wide), unwritten(wide)), None
    if normaliser:
        row_z = Normaliser(np.empty(out.shape[:-1], wide), np.empty(out.shape[:-1], wide))
        answers = answers[0], row_z.peak.reshape(-1), row_z.z.reshape(-1)
    sums = flat(s, wide), flat(z, wide), flat(peak, wide)
    read = phi.arrays, e, x, given, sums, how.reads, n

    def by_floats(answers: Answers, none: Any = ()) -> bool:
        share(partial(answer, *read, answers, how.chunk), how.pieces, how.seconds)
        return True

    taken = operands_for(out, side) if wide == np.float32 else None
    if taken is None:
        by_floats(answers)
    else:
        told = np.zeros(out.size // e, np.uint8)
        share(partial(answer_tiles, *read, answers, how.chunk, taken.made, told), how.pieces, how.seconds / FASTER)
        if told.any():
            patch(answers, (), told.view(bool), told.view(bool), by_floats)
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
