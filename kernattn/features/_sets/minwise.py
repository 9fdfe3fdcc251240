"""Minwise hashing: signs of the member of a set that comes first in a random order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, anywhere
from kernattn.errors import ParameterError
from kernattn.features._sets.base import SetFeatures
from kernattn.features._sets.rows import Sets, unary
from kernattn.ops.dispatch import Op
from kernattn.ops.minwise import OP

MOST = 2**16  # a column with the count c costs what c columns cost
MEMBERS = 2**22  # of sets that are hashed together


@final
@dataclass(frozen=True, eq=False, repr=False)
class MinwiseHashing(SetFeatures):
    r"""Minwise hashing of bits and counts: :math:`\phi_j(x) = M^{-1/2} s_j(\arg\min_{b \in X} h_j(b))`.

    Broder (1997), and one random sign of the least member in place of it (Li and Koenig 2011, who keep its last bit).
    h_j orders all possible members at random, :math:`s_j(b) = \pm 1`; two sets have one least member with the
    probability :math:`|X \cap Y| / |X \cup Y|`, and signs of two members agree by chance. A column with the count c is
    c members of X, its levels 1 to c, so that the sizes are :math:`\sum \min` and :math:`\sum \max` of the counts. A
    row of zeros is a set with a member of its own. Time is that of M hashes for every member.

    A hash has 32 bits, by an exclusive or and an odd factor that are random for each feature, and a mix. Two members
    have the same one once in 2^32, and tests hold the variance to 3 % of that of independent random orders.
    """

    _op: ClassVar[Op] = OP
    _entries: ClassVar[int] = 2**21

    def check_values(self, name: str, values: Array) -> None:
        """Raise unless values are whole numbers from 0 to 2^16."""
        if values.dtype.kind == "b":
            return
        self.kernel.check_domain(name, values)
        if anywhere((values > MOST) | (values != np.floor(values))):
            raise ParameterError(
                f"{name} must hold bits or counts up to {MOST} for the estimator 'minwise'; 'consistent' takes all "
                "numbers that are not negative"
            )

    def _write(self, sets: Sets, out: NDArray[Any], op: Callable[..., None]) -> None:
        starts, columns, counts = sets
        if len(out) > 1 and counts.sum(dtype=np.float64) > MEMBERS:
            half = len(out) // 2
            at = starts[half]
            self._write(Sets(starts[: half + 1], columns[:at], counts[:at]), out[:half], op)
            self._write(Sets(starts[half:] - at, columns[at:], counts[at:]), out[half:], op)
        else:
            op(*unary(sets), self._words, out)
