"""Full attention of few tokens by Numba: products of queries and keys, which are fewer than those with their sums."""

from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._maps.spec import MapSpec, ScaledFeatures
from kernattn._sums.peaked import Normaliser
from kernattn.ops._numba.tiles.layout import accumulation, room
from kernattn.ops.features.sides import keys, queries
from kernattn.ops.key_state.recurrence import runs_of, work_of

LONGEST = 128  # tokens whose features lie in the second-level cache
FEWER = 2  # products with the sums that a product of queries and keys, and one with values, are worth


def short(
    k: Array | ScaledFeatures, v: Array, k_spec: MapSpec | None, key_mask: Array | None, q: Array | ScaledFeatures,
    q_spec: MapSpec | None, dtype: Any, normaliser: bool,
) -> tuple[Array, Normaliser | None] | None:  # fmt: skip
    """Return the outputs of `attend` on the `key_state`, or None where that is to be made.

    It is where there are many tokens, other queries than keys in number, or keys so far apart that they share no unit.
    """
    n, e = v.shape[-2:]
    if n > LONGEST or (q.values if isinstance(q, ScaledFeatures) else q).shape[-2] != n:
        return None
    wide = accumulation(v)
    known = keys(k, k_spec, wide)
    features = known.phi.features
    if n * (features + e) > FEWER * features * e:
        return None
    readers = queries(q, q_spec, wide, normaliser)
    work = work_of(readers, known, v, key_mask, None, n)
    out, row_z = room((*work.plan.heads.out_lead, n, e), dtype), None
    if normaliser:
        row_z = Normaliser(np.empty(out.shape[:-1], wide), np.empty(out.shape[:-1], wide))
    if not work.answer(runs_of(work.plan.who, (0, n), False), out, row_z):
        return None
    return out, row_z
