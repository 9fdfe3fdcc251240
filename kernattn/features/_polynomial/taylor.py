"""The second-order Taylor polynomial of the softmax kernel, as features."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb
from typing import final

from kernattn._arrays.namespaces import Array, accumulation_dtype, constant, namespace
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.checks import instance_of, positive_integer
from kernattn._sums.units import restore, scaled_down
from kernattn.features._base.deterministic import ExactMap
from kernattn.features._polynomial.monomials import monomials
from kernattn.kernels import Softmax


@final
@dataclass(frozen=True, eq=False, repr=False)
class Taylor2(ExactMap):
    r""":math:`\phi(x) = [1, x', (x' \otimes x') / \sqrt 2]`, the symmetric half, with :math:`x' = s^{1/2} x`."""

    softmax: Softmax

    def __post_init__(self) -> None:
        instance_of("softmax", self.softmax, Softmax)

    def num_features_of(self, dim: int) -> int:
        """Return M = 1 + d + d (d + 1) / 2."""
        return comb(positive_integer("dim", dim) + 2, 2)

    def scaled_query(self, x: Array) -> ScaledFeatures:
        xp = namespace(x=x)
        dtype = accumulation_dtype(xp, x)
        x, octaves = scaled_down(xp, xp.astype(x, dtype, copy=False))
        x = restore(xp, x * constant(xp, self.softmax.input_scale(x.shape[-1]), dtype, x), octaves)
        size = xp.clip(xp.max(xp.abs(x), axis=-1, keepdims=True), min=1.0)  # (..., n, 1)
        unit = x / size
        values = xp.concat([(1 / size) ** 2, unit / size, 0.5**0.5 * monomials(unit, 2)], axis=-1)
        return ScaledFeatures(values, 2 * xp.log(size))


def taylor2(scale: float | None = None) -> Taylor2:
    r"""Return the exact map of :math:`k(x, y) = 1 + t + t^2 / 2`, :math:`t = s\, x^T y`.

    It is the Taylor polynomial of the softmax kernel :math:`e^t`, whose error is at most :math:`|t|^3 e^{|t|} / 6`
    (Keles, Wijewardena and Hegde 2023; Arora et al. 2024 for its use in attention). The kernel is
    :math:`((1 + t)^2 + 1) / 2`, positive for every pair, though features have either sign; attention with this map has
    a positive normaliser. It takes any dimension d and gives :math:`M = 1 + d + d(d + 1) / 2` features.

    Parameters
    ----------
    scale : float, optional
        The scale s of the softmax kernel, positive; :math:`d^{-1/2}` without it.

    Returns
    -------
    Taylor2
        The map.

    Raises
    ------
    ParameterError
        If the scale is not a positive finite number.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x, y = np.array([[0.1, 0.3, 0.2, 0.4]]), np.array([[0.5, -0.2, 0.4, 0.6]])
    >>> phi = ka.features.taylor2()
    >>> phi(x).shape, (phi(x) @ phi(y).T).round(4), np.exp(x @ y.T / 2).round(4)
    ((1, 15), array([[1.167]]), array([[1.1677]]))
    """
    return Taylor2(Softmax(scale))
