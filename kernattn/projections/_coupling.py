r"""Norms in coupled pairs: :math:`r' = F^{-1}(1 - F(r))`, a long one with a short one."""

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.lazy_scipy import special
from kernattn.errors import ParameterError
from kernattn.projections._norm_law import NormLaw
from kernattn.projections._norms import NORM_LAWS

COUPLED_NORMS = (*NORM_LAWS, "coupled")
STEP, NODES = 0.375, 99  # up to 37, past which ndtr underflows


def law_named(norms: str, own: NormLaw) -> NormLaw:
    """Return the law of one norm: "chi" and "coupled" stand for a kernel's own law, which for "coupled" must be chi."""
    if norms == "coupled" and own != NORM_LAWS["chi"]:
        raise ParameterError(
            "norms 'coupled' are paired by the quantiles of chi, the law of Gaussian and softmax kernels' norms; "
            f"this kernel has {own!r}"
        )
    return own if norms in ("chi", "coupled") else NORM_LAWS[norms]


def partners(norms: Float64, d: int) -> Float64:
    r"""Return :math:`F^{-1}(1 - F(r))` for norms r of N(0, I_d), F the distribution function of chi.

    Each tail goes through the function that is accurate there.
    """
    half, b = norms**2 / 2, d / 2
    long = half > b
    squares = np.empty_like(half)
    squares[long] = special.gammaincinv(b, special.gammaincc(b, half[long]))
    squares[~long] = special.gammainccinv(b, special.gammainc(b, half[~long]))
    return np.sqrt(2 * squares)


def couple_norms(norms: Float64, blocks: tuple[int, ...], d: int) -> Float64:
    """Return norms whose second, fourth, ... of each block are the partners of the first, third, ...; the rest stays.

    Reid et al. (2025).
    """
    norms, start = norms.copy(), 0
    second = np.zeros(len(norms), bool)
    for size in blocks:
        second[start + 1 : start + size : 2] = True
        start += size
    second = np.flatnonzero(second)
    norms[second] = partners(norms[second - 1], d)
    return norms


def coupled_nodes(d: int) -> tuple[Float64, Float64, Float64]:
    r"""Return norms r, their partners r', and the logarithms of weights that make sums of f(r, r') = f(r', r) into E f.

    Trapezoids in the normal score x of :math:`F(r) = \Phi(x)`, in which f(r, r') is even.
    """
    x = STEP * np.arange(NODES)
    tail = special.ndtr(-x)
    log_weights = np.log(STEP * np.where(x > 0, 2.0, 1.0)) - x**2 / 2 - np.log(2 * np.pi) / 2
    return np.sqrt(2 * special.gammainccinv(d / 2, tail)), np.sqrt(2 * special.gammaincinv(d / 2, tail)), log_weights
