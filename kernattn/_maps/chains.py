"""Frequencies as factors: chains of Hadamard transforms in place of the matrix that they make up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from kernattn._arrays.namespaces import Float64, frozen
from kernattn._maps.walsh import next_power_of_two, walsh_hadamard
from kernattn._runtime.checks import host_array, positive_integer, summary
from kernattn._runtime.lazy import lazy, without_lazy
from kernattn.errors import ShapeError


@final
@dataclass(frozen=True, eq=False, repr=False)
class Chains(NDArrayOperatorsMixin):
    r"""Frequencies :math:`\Omega = R\, [H D_k \cdots H D_1]_{\text{blocks}}`, (m, d), of which only R and D are held.

    H is the Walsh-Hadamard matrix over :math:`\sqrt p` in Sylvester's order, R the diagonal of the norms; of p columns
    the first d are taken. Source: Yu et al. (2016). The op `hadamard` applies them in p log p operations for p
    frequencies. All else in NumPy's array language takes them for the dense matrix, which is made when it is first
    asked for.

    Attributes
    ----------
    diagonals : (blocks, k, p) numpy.ndarray
        The diagonals :math:`D_1, \dots, D_k` of each block, float64, p a power of two that is at least d.
    norms : (m,) numpy.ndarray
        The diagonal of R, float64, m at most blocks times p.
    dim : int
        Dimension d.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn._maps.chains import Chains
    >>> omega = Chains(np.ones((1, 1, 4)), np.full(4, 2.0), dim=2)
    >>> omega.shape
    (4, 2)
    >>> omega @ np.array([1.0, 1.0])
    array([2., 0., 2., 0.])
    """

    diagonals: Float64
    norms: Float64
    dim: int

    def __post_init__(self) -> None:
        host_array("diagonals", self.diagonals, ("blocks", "k", "p"))
        host_array("norms", self.norms, ("m",))
        blocks, _, p = self.diagonals.shape
        if p != next_power_of_two(p) or positive_integer("dim", self.dim) > p:
            raise ShapeError(f"p must be a power of two that is at least d; got p = {p} and d = {self.dim}")
        if not (blocks - 1) * p < len(self.norms) <= blocks * p:
            raise ShapeError(f"norms must be for {blocks} blocks of {p} rows, the last one cut; got {len(self.norms)}")

    @property
    def shape(self) -> tuple[int, int]:
        """(m, d)."""
        return len(self.norms), self.dim

    @property
    def ndim(self) -> int:
        """Two."""
        return 2

    def __len__(self) -> int:
        """Return m."""
        return len(self.norms)

    @property
    def T(self) -> Float64:
        """The transpose of the dense matrix, (d, m)."""
        return self.dense.T

    @lazy
    def dense(self) -> Float64:
        """The matrix, (m, d), which cannot be written to."""
        return frozen(self._multiply_out())

    @property
    def square_norms(self) -> Float64:
        """Squared norms of the rows, (m,)."""
        if self.dim == self.diagonals.shape[-1] and np.all(np.abs(self.diagonals) == 1):  # rows of orthogonal matrices
            return self.norms**2
        return np.asarray(np.sum(self._multiply_out() ** 2, axis=-1))

    def scale(self, columns: Float64, rows: float = 1.0) -> Chains:
        """Return the frequencies with their columns times (d,) numbers, and all of them times one."""
        first = np.pad(columns, (0, self.diagonals.shape[-1] - self.dim), constant_values=1.0)
        diagonals = self.diagonals.copy()
        diagonals[:, 0] *= first
        return replace(self, diagonals=frozen(diagonals), norms=frozen(rows * self.norms))

    def _multiply_out(self) -> Float64:
        p = self.diagonals.shape[-1]
        blocks = np.broadcast_to(np.eye(p, self.dim), (len(self.diagonals), p, self.dim))
        for link in range(self.diagonals.shape[1]):
            blocks = walsh_hadamard(self.diagonals[:, link, :, None] * blocks)
        return np.asarray(self.norms[:, None] * blocks.reshape(-1, self.dim)[: len(self.norms)])

    __repr__ = summary
    __getstate__ = without_lazy
    __eq__ = object.__eq__
    __ne__ = object.__ne__
    __hash__ = object.__hash__

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Float64:
        return np.array(self.dense, dtype=dtype, copy=copy)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        given = (each.dense if isinstance(each, Chains) else each for each in inputs)
        return getattr(ufunc, method)(*given, **options)

    def __getitem__(self, index: Any) -> Any:
        return self.dense[index]
