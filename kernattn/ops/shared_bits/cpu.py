"""Bits in common by Numba, rows shared among threads."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernattn._runtime.parallel import share
from kernattn.ops._numba.tiles.layout import flat
from kernattn.ops.shared_bits.loops import count_shared

SECONDS = 3e-10  # of a word


def shared_bits(x: NDArray[np.uint64], y: NDArray[np.uint64], out: NDArray[Any]) -> None:
    rows = flat(x, x.dtype, x.shape), flat(y, y.dtype, y.shape)
    share(partial(count_shared, *rows, out), len(x), SECONDS * len(x) * y.size)
