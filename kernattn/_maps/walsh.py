"""The fast Walsh-Hadamard transform, and the sizes that it takes."""

import numpy as np

from kernattn._arrays.namespaces import Float64


def next_power_of_two(d: int) -> int:
    """Return the least power of two that is at least d."""
    return 1 << (d - 1).bit_length()


def walsh_hadamard(x: Float64) -> Float64:
    r"""Return :math:`p^{-1/2} H x` of columns x (..., p, c), p = 2^k, in Sylvester's order; it is its own inverse.

    >>> import numpy as np
    >>> from kernattn._maps.walsh import walsh_hadamard
    >>> 2 * walsh_hadamard(np.eye(4))
    array([[ 1.,  1.,  1.,  1.],
           [ 1., -1.,  1., -1.],
           [ 1.,  1., -1., -1.],
           [ 1., -1., -1.,  1.]])
    """
    *lead, p, columns = x.shape
    half = 1
    while half < p:
        pairs = x.reshape(*lead, p // (2 * half), 2, half, columns)
        x = np.stack([pairs[..., 0, :, :] + pairs[..., 1, :, :], pairs[..., 0, :, :] - pairs[..., 1, :, :]], axis=-3)
        half *= 2
    return np.asarray(x.reshape(*lead, p, columns) * p**-0.5)
