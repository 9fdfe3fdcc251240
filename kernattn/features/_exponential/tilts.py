r"""The best tilts of exponential features on data.

Likhosherstov et al. (2022, 2023): the second moment of a term of `OptimalPositive`, or of one axis of
`DenseExponential`, is least at :math:`A = (1 - 2p - \sqrt{(2p + 1)^2 + 8p}) / 16`, p the mean of :math:`(x + y)_i^2`.
"""

import numpy as np

from kernattn._arrays.namespaces import Float64, frozen


def best_tilt(p: Float64) -> Float64:
    """Return the best tilt at p, the mean of (x + y)^2 along an axis; it is 0 or below."""
    return np.asarray((1 - 2 * p - np.sqrt((2 * p + 1) ** 2 + 8 * p)) / 16)


def best_tilts(queries: Float64, keys: Float64) -> tuple[Float64, Float64]:
    r"""Return the diagonal of A (d,) and the basis Q (d, d) that are best for scaled queries x and keys y, (n, d).

    With :math:`M = E (x + y)(x + y)^T` for independent x and y, the expected logarithm of a term's second moment is, up
    to a constant,

    .. math:: \sum_i \log(1 - 4A_i) - \frac12 \log(1 - 8A_i) + \frac{2 (1 - 4A_i)}{1 - 8A_i} (Q^T M Q)_{ii}.

    The minimum over :math:`A_i` is concave in :math:`p = (Q^T M Q)_{ii}`, so the sum over i is least for the most
    unequal diagonal, which is that of the eigenvectors of M.
    """
    product = np.outer(np.mean(queries, axis=0), np.mean(keys, axis=0))
    moment = queries.T @ queries / len(queries) + keys.T @ keys / len(keys)
    p, basis = np.linalg.eigh(moment + (product + product.T))
    return frozen(best_tilt(np.maximum(p, 0.0))), frozen(basis)
