"""Two orthogonal frequencies seen from two sides."""

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy_scipy import special

REACH = 40.0  # of |a|^2 and |b|^2, up to which the series below is right to about 1e-8 of e^((|a|^2 + |b|^2) / 2)
TERMS, DEPTH = 96, 32


def orthogonal_cross(a2: Float64, b2: Float64, ab: Float64, d: int, sign: int) -> Float64:
    r"""Return :math:`E\,e^{\omega^T a + \omega'^T b}` of orthogonal rows with norms "chi", (P,), d at least 2.

    It takes :math:`|a|^2`, :math:`|b|^2` and :math:`a^T b` of P pairs. The sign is 1 for exponentials and hyperbolic
    cosines, -1 for cosines.

    The mean of :math:`e^{\mathrm{tr}\, A^T U}` over orthonormal U (d x 2) is the hypergeometric function
    :math:`{}_0F_1(; d/2; A^T A / 4)` of a matrix argument (James 1964; Muirhead 1982, theorem 7.4.1), for two columns

    .. math:: \sum_k \frac{\det(A^T A / 4)^k}{(c - \frac12)_k (c)_{2k}\, k!}\;
              {}_0F_1(; c + 2k; \mathrm{tr}\, A^T A / 4), \quad c = d/2.

    With :math:`A = [ra, r'b]` and independent :math:`r^2, r'^2 \sim \chi^2_d` this becomes, term by term,

    .. math:: \sum_k \frac{(c)_k^2\, ((|a|^2 |b|^2 - (a^T b)^2) / 4)^k}{(c - \frac12)_k (c)_{2k}\, k!} \sum_{i, j}
              \frac{(c + k)_i (c + k)_j}{(c + 2k)_{i + j}} \frac{(\pm |a|^2/2)^i (\pm |b|^2/2)^j}{i!\, j!}.

    For a = b it is :math:`{}_1F_1(d; d/2; |a|^2/2)`. The product :math:`\cos \omega^T a \cos \omega'^T b` has the lower
    sign, for :math:`E \sin \sin` is 0: turning one row around changes no law.
    """
    c, n = d / 2, np.arange(float(TERMS))
    x, y = (np.power.outer(sign * each / 2, n) for each in (a2, b2))  # (P, TERMS)
    area = np.maximum(a2 * b2 - ab**2, 0.0) / 4

    def rising(start: float, count: Float64 | float) -> Float64:
        return np.asarray(special.gammaln(start + count) - special.gammaln(start))

    total = np.zeros(np.shape(a2))
    for k in range(DEPTH):
        first = np.exp(2 * rising(c, k) - rising(c - 0.5, k) - rising(c, 2 * k) - special.gammaln(k + 1.0)) * area**k
        each = rising(c + k, n) - special.gammaln(n + 1.0)
        series = np.exp(each[:, None] + each - rising(c + 2 * k, n[:, None] + n))
        term = first * np.sum((x @ series) * y, axis=-1)
        total += term
        if np.all(np.abs(first) * np.exp((a2 + b2) / 2) < 1e-17):
            break
    return total
