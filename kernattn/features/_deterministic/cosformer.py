"""The map of cosFormer: features that weigh pairs by their distance."""

from __future__ import annotations

from dataclasses import dataclass
from math import pi
from typing import final

from kernattn._arrays.namespaces import Array, accumulation_dtype, namespace, zeros
from kernattn._maps.spec import ScaledFeatures
from kernattn._runtime.checks import positive_integer
from kernattn.errors import ShapeError
from kernattn.features._base.deterministic import ExactMap


@final
@dataclass(frozen=True, eq=False, repr=False)
class Cosformer(ExactMap):
    r""":math:`\phi(x, p) = [\mathrm{relu}(x) \cos\frac{\pi p}{2L}, \mathrm{relu}(x) \sin\frac{\pi p}{2L}]`."""

    length: int

    def __post_init__(self) -> None:
        positive_integer("length", self.length)

    def num_features_of(self, dim: int) -> int:
        """Return M = 2 (d - 1), of which each coordinate but the position gives two."""
        if positive_integer("dim", dim) < 2:
            raise ShapeError(f"cosformer takes rows of coordinates and a position, d = 2 at least; got d = {dim}")
        return 2 * (dim - 1)

    def scaled_query(self, x: Array) -> ScaledFeatures:
        """Return the features of x (..., n, d), whose last column is the position, with a log scale of 0."""
        xp = namespace(x=x)
        self.num_features_of(x.shape[-1])
        dtype = accumulation_dtype(xp, x)
        x = xp.astype(x, dtype, copy=False)
        angle = x[..., -1:] * (pi / (2 * self.length))
        u = x[..., :-1]
        kept = xp.where(u > 0, u, xp.where(xp.isnan(u), u, xp.zeros_like(u)))
        values = xp.concat([kept * xp.cos(angle), kept * xp.sin(angle)], axis=-1)
        return ScaledFeatures(values, zeros(xp, (*x.shape[:-1], 1), dtype, x))


def cosformer(length: int) -> Cosformer:
    r"""Return the map of :math:`\mathrm{relu}(q_i)^T \mathrm{relu}(k_j) \cos\frac{\pi (i - j)}{2L}`.

    cosFormer, Qin et al. (2022), eq. 10, by the cosine of a difference. The last column of its input is the position i:
    rows of d numbers have d - 1 coordinates and give M = 2 (d - 1) features. Weights are never negative for positions
    up to L apart; whatever lies farther may have weights below 0. A query without a positive coordinate attends to
    nothing: its output is 0.

    Parameters
    ----------
    length : int
        L, as large as the largest distance, as a rule the number of tokens.

    Returns
    -------
    Cosformer
        The map. In float16 positions above 2,048 are rounded, in bfloat16 those above 256.

    Raises
    ------
    ParameterError
        If the length is no positive integer.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> x, position = np.ones((3, 1)), np.arange(3.0)[:, None]
    >>> rows, phi = np.concatenate([x, position], axis=-1), ka.features.cosformer(3)
    >>> (phi(rows) @ phi(rows).T).round(3)
    array([[1.   , 0.866, 0.5  ],
           [0.866, 1.   , 0.866],
           [0.5  , 0.866, 1.   ]])
    """
    return Cosformer(length)
