"""Sums of minima of sparse rows, a row of the matrix at a time."""

import numpy as np

from kernattn.ops._numba.codegen.compile import compiled


@compiled
def write_shares(values, columns, starts, y_values, y_rows, y_starts, x_sums, y_sums, out, low, high):
    """Write rows low to high of the matrix (n, k)."""
    shared = np.zeros(out.shape[1])
    for i in range(low, high):
        for t in range(starts[i], starts[i + 1]):
            for s in range(y_starts[columns[t]], y_starts[columns[t] + 1]):
                shared[y_rows[s]] += min(values[t], y_values[s])
        for j in range(out.shape[1]):
            total = x_sums[i] + y_sums[j] - shared[j]
            out[i, j] = shared[j] / total if total != 0 else 1.0
            shared[j] = 0.0
