"""Consistent samples by Numba, blocks of features shared among threads."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._runtime.parallel import share
from kernattn.ops._numba.tiles.layout import flat
from kernattn.ops.consistent.loops import BLOCK, write_samples
from kernattn.ops.minwise.words import Words

SECONDS, OF_MEMBER = 1e-9, 6e-8  # of one entry, and of the numbers of one member


def consistent(
    starts: NDArray[np.int64],
    places: NDArray[np.int32],
    logs: NDArray[np.float32],
    members: Words,
    keys: Words,
    out: NDArray[Any],
) -> None:
    number = keys.shape[1]
    padded = np.pad(keys, ((0, 0), (0, -number % BLOCK)))
    given = (flat(x, x.dtype, x.shape) for x in (starts, places, logs, members, padded))
    loop = partial(write_samples, *given, out, out.dtype.type(number**-0.5))
    share(loop, -(-number // BLOCK), number * (SECONDS * len(places) + OF_MEMBER * len(members)))
