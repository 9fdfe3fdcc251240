"""Minwise hashes by Numba, sets shared among threads."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._runtime.parallel import share
from kernattn.ops._numba.tiles.layout import flat
from kernattn.ops.minwise.loops import BLOCK, write_signs
from kernattn.ops.minwise.words import Words

SECONDS = 1.1e-10  # of one hash


def minwise(starts: NDArray[np.int64], members: Words, keys: Words, out: NDArray[Any]) -> None:
    number = keys.shape[1]
    padded = np.pad(keys, ((0, 0), (0, -number % BLOCK)))
    given = flat(starts, starts.dtype), flat(members, members.dtype), flat(padded, padded.dtype, padded.shape)
    loop = partial(write_signs, *given, out, out.dtype.type(number**-0.5))
    share(loop, len(out), SECONDS * float(starts[-1] - starts[0]) * number)
