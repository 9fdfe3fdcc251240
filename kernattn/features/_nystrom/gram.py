"""A kernel matrix of which entries are computed, or read, on demand."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Float64
from kernattn._arrays.shapes import strips
from kernattn._runtime.lazy_scipy import linalg
from kernattn.kernels import Kernel

BLOCK = 1024  # rows of data at a time


@final
@dataclass(frozen=True, eq=False)
class Gram:
    """The matrix k(x_i, x_j) of n rows of data, or the matrix itself where the kernel is None."""

    kernel: Kernel | None
    data: Any  # (n, d) of float64, which may be CSR, or (n, n)

    def __len__(self) -> int:
        return int(self.data.shape[0])

    def diagonal(self) -> Float64:
        """Return k(x_i, x_i), (n,)."""
        result: Float64 = self.data.diagonal().copy() if self.kernel is None else self.kernel.diag(self.data)
        return result

    def entries(self, rows: Any, columns: Any) -> Float64:
        """Return the entries of some rows and columns, indices or slices."""
        if self.kernel is None:
            chosen: Float64 = self.data[rows][:, columns]
            return chosen
        result: Float64 = self.kernel(self.data[rows], self.data[columns])
        return result

    def against(self, rows: slice, landmarks: NDArray[Any]) -> Float64:
        """Return the matrix of some rows with landmarks: indices into the data, or points."""
        if landmarks.ndim == 1 or self.kernel is None:
            return self.entries(rows, landmarks)
        result: Float64 = self.kernel(self.data[rows], landmarks)
        return result


def prefix_residuals(gram: Gram, landmarks: NDArray[Any], inner: Float64) -> Float64:
    """Return tr(K - K') / tr K for K' of the first 1, 2, ..., m landmarks, whose own matrix is `inner`; (m,)."""
    factor = _cholesky(inner)
    energy = np.zeros(len(inner))
    for here in strips(len(gram), BLOCK):
        cross = gram.against(here, landmarks)  # (rows, m)
        coordinates = linalg.solve_triangular(factor, cross.T, lower=True, check_finite=False)
        energy += np.sum(coordinates**2, axis=1)
    return np.maximum(1.0 - np.cumsum(energy) / np.sum(gram.diagonal()), 0.0)


def _cholesky(matrix: Float64) -> Float64:
    """Return the Cholesky factor; a row that depends on those before it gets an infinite pivot, and so adds nothing."""
    floor = 1e-12 * np.max(matrix.diagonal())
    factor = np.zeros_like(matrix)
    for j in range(len(matrix)):
        column = matrix[j:, j] - factor[j:, :j] @ factor[j, :j]
        if column[0] > floor:
            factor[j:, j] = column / column[0] ** 0.5
        else:
            factor[j, j] = np.inf
    return factor
