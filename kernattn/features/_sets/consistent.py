"""Consistent weighted sampling: signs of samples of which two rows have the same one as often as k says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array
from kernattn.features._sets.base import SetFeatures
from kernattn.features._sets.rows import Sets
from kernattn.ops.consistent import OP
from kernattn.ops.dispatch import Op
from kernattn.ops.minwise.words import mixed


@final
@dataclass(frozen=True, eq=False, repr=False)
class ConsistentSampling(SetFeatures):
    r"""Improved consistent weighted sampling: :math:`\phi_j(x) = M^{-1/2} s_j(b, t)`, (b, t) the sample of the row x.

    Ioffe (2010), algorithm 1; of the sample one random sign is kept. For every column b and feature j there are
    :math:`r, c \sim \Gamma(2, 1)` and :math:`\beta` uniform. A column of weight S has the level
    :math:`t = \lfloor \log S / r + \beta \rfloor`, and the column with the least
    :math:`\log c - r (t - \beta + 1)` is the sample's. Two rows have one sample with the probability
    :math:`\sum \min / \sum \max`, for all numbers that are not negative. Logarithms are of float32: weights count to a
    relative 10^-6.
    """

    _op: ClassVar[Op] = OP
    _entries: ClassVar[int] = 2**18

    def check_values(self, name: str, values: Array) -> None:
        """Raise unless values are finite and not negative."""
        if values.dtype.kind != "b":
            self.kernel.check_domain(name, values)

    def _write(self, sets: Sets, out: NDArray[Any], op: Callable[..., None]) -> None:
        columns, places = np.unique(sets.columns, return_inverse=True)
        logs = np.log(sets.weights, dtype=np.float64, casting="unsafe").astype(np.float32)
        op(sets.starts, places.astype(np.int32), logs, mixed(columns.astype(np.uint32)), self._words, out)
