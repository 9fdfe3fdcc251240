"""Gram-Schmidt of many blocks at once."""

from __future__ import annotations

import numpy as np

from kernattn._array import Host

__all__ = ["gram_schmidt"]


def gram_schmidt(rows: Host) -> Host:
    r"""Orthonormalise the rows of every block: :math:`u_i = w / |w|`, :math:`w = g_i - \sum_{j<i} (g_i^T u_j) u_j`.

    Classical Gram-Schmidt, each projection done twice: twice is enough for orthogonality to rounding (Giraud, Langou
    and Rozloznik 2005).

    Parameters
    ----------
    rows : (b, k, d) array of float64
        Blocks of k <= d linearly independent rows.

    Returns
    -------
    (b, k, d) array of float64
        Orthonormal rows that span the same flags.
    """
    done = np.zeros_like(rows)
    for i in range(rows.shape[1]):
        row = rows[:, i]
        earlier = done[:, :i]  # (b, i, d)
        for _ in range(2):
            row = row - np.einsum("bi,bid->bd", np.einsum("bid,bd->bi", earlier, row), earlier)
        done[:, i] = row / np.linalg.norm(row, axis=-1, keepdims=True)
    return done
