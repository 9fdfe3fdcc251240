"""Count sketches, entry by entry."""

from kernattn.ops._numba.codegen.compile import compiled


@compiled
def sketch_dense(x, index, weight, out, low, high):
    """Sketch rows low to high of an array."""
    for r in range(low, high):
        out[r] = 0
        for i in range(index.shape[0]):
            for j in range(index.shape[1]):
                out[r, i, index[i, j]] += weight[i, j] * x[r, j]


@compiled
def sketch_csr(data, indices, indptr, index, weight, out, low, high):
    """Sketch rows low to high of a CSR matrix."""
    for r in range(low, high):
        out[r] = 0
        for i in range(index.shape[0]):
            for t in range(indptr[r], indptr[r + 1]):
                j = indices[t]
                out[r, i, index[i, j]] += weight[i, j] * data[t]
