"""Gram-Schmidt orthogonalisation of the rows of many blocks at once."""

from __future__ import annotations

import numpy as np

from kernattn._array import Host

__all__ = ["gram_schmidt"]


def gram_schmidt(blocks: Host) -> Host:
    r"""Return orthonormal rows: :math:`q_i` is :math:`a_i - \sum_{j<i} (a_i^T q_j) q_j`, normalised.

    Classical Gram-Schmidt with every subtraction done twice, which is enough for orthogonality to rounding (Giraud,
    Langou and Rozloznik 2005). As the rows of Q in :math:`A^T = Q^T R` with a positive diagonal of R, the result is
    unique; for Gaussian blocks it is uniform on the orthonormal sets (Haar).

    Parameters
    ----------
    blocks : (..., b, d) numpy.ndarray
        Blocks of b <= d linearly independent rows, float64.

    Returns
    -------
    (..., b, d) numpy.ndarray
        The orthonormal rows.

    Examples
    --------
    >>> import numpy as np
    >>> from kernattn.projections.gram_schmidt import gram_schmidt
    >>> gram_schmidt(np.array([[3.0, 0.0], [5.0, 2.0]]))
    array([[1., 0.],
           [0., 1.]])
    """
    q = np.zeros_like(blocks)
    for i in range(blocks.shape[-2]):
        row, done = blocks[..., i, :, None], q[..., :i, :]  # (..., d, 1), (..., i, d)
        for _ in range(2):
            row = row - np.swapaxes(done, -1, -2) @ (done @ row)
        q[..., i, :] = (row / np.linalg.norm(row, axis=-2, keepdims=True))[..., 0]
    return q
