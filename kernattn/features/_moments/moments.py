"""The moments of one term of an estimate, and of sums of such terms, as the normaliser of an attention row is one."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn.projections import Pair


class Moments(NamedTuple):
    """Of one frequency's term t of an estimate: E t, E t^2, and E t t' for a pair of frequencies."""

    mean: Float64
    second: Float64
    cross: Callable[[Pair], Float64]


def of_even_terms(moment: Callable[[Pair], Float64], pair: Pair) -> Float64:
    """Return E t(w) t(w') of an even term, as cos a cos b = (cos(a + b) + cos(a - b)) / 2, from moments of w + w'."""
    return np.asarray(np.mean([moment(each) for each in {pair, pair.opposite}], axis=0))


def times_exp(value: Float64, log: Float64) -> Float64:
    """Return value e^log, where e^log alone may be beyond the floats."""
    plain = value * np.exp(log)
    return np.asarray(np.where(np.isfinite(plain), plain, np.sign(value) * np.exp(np.log(np.abs(value)) + log)))


def exponential_products(s: Float64, row: Float64, tilt: Float64) -> tuple[Float64, Float64]:
    r"""Return :math:`E\,t_j t_l`, (l, l), and :math:`E (T - E T)^3` of :math:`T = \sum_j t_j`, ().

    With :math:`t_j = e^{r_j} \prod_i B_i e^{2 A_i \omega_i^2 + B_i \omega_i s_{ji}}`, :math:`B_i^2 = 1 - 4A_i`, and
    normal frequencies the mean of a product of p terms is one Gaussian integral: :math:`e^{r_j + r_l + \dots}` times

    .. math:: \prod_i (1 - 4A_i)^{p/2} (1 - 4pA_i)^{-1/2}
              \exp\left(\frac{1 - 4A_i}{2 (1 - 4pA_i)} (s_j + s_l + \dots)_i^2\right).

    Squares of sums are sums over pairs, so that the sum over all triples is one over pairs of a product of matrices.
    The third moment is infinite where a tilt is 1/12 or more.
    """

    def gram(p: int) -> tuple[Float64, Float64]:
        weights = (1 - 4 * tilt) / (1 - 4 * p * tilt)
        constant = np.sum(p * np.log1p(-4 * tilt) - np.log1p(-4 * p * tilt)) / (2 * p)
        return np.exp(row + s**2 @ weights / 2 + constant), np.exp((s * weights) @ s.T)

    mean = np.sum(np.exp(row + np.sum(s**2, axis=-1) / 2))
    b, g = gram(2)
    products = np.outer(b, b) * g
    if not (12 * tilt < 1).all():
        return products, np.asarray(np.inf)
    b, g = gram(3)
    g = np.outer(b**0.5, b**0.5) * g
    third = np.sum(g * (g @ g))
    return products, np.asarray(third - 3 * mean * np.sum(products) + 2 * mean**3)


def cosine_products(s: Float64, row: Float64, sign: int) -> tuple[Float64, Float64]:
    r"""Return :math:`E\,t_j t_l` and :math:`E (T - E T)^3` of :math:`t_j = e^{r_j} \cos \omega^T s_j`, cosh at sign 1.

    With :math:`b_j = e^{r_j \pm |s_j|^2 / 2}` and :math:`G_{jl} = e^{\pm s_j^T s_l}`, the products are
    :math:`b_j b_l (G_{jl} + 1 / G_{jl}) / 2`, and :math:`E\,T^3 = \frac14 \sum_{jkl} b_j b_k b_l
    (G_{jk} G_{jl} G_{kl} + 3 G_{jk} / G_{jl} / G_{kl})`.
    """
    b = np.exp(row + sign * np.sum(s**2, axis=-1) / 2)
    log = sign * s @ s.T
    g, h = (np.outer(b**0.5, b**0.5) * np.exp(each) for each in (log, -log))
    products = np.outer(b, b) * (np.exp(log) + np.exp(-log)) / 2
    third = (np.sum(g * (g @ g)) + 3 * np.sum(g * (h @ h))) / 4
    mean = np.sum(b)
    return products, np.asarray(third - 3 * mean * np.sum(products) + 2 * mean**3)
