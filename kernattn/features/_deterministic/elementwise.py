"""Maps that act on each coordinate on its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from kernattn._maps.spec import MapSpec
from kernattn._runtime.checks import one_of
from kernattn._runtime.lazy import lazy
from kernattn.features._base.deterministic import ExactMap
from kernattn.features._base.spec_map import SpecMap

FUNCTIONS = ("elu1", "exp", "relu")


@final
@dataclass(frozen=True, eq=False, repr=False)
class Elementwise(SpecMap, ExactMap):
    r""":math:`\phi(x)_i = f(x_i)`, M = d features."""

    function: str  # "elu1" | "relu" | "exp"

    def __post_init__(self) -> None:
        one_of("function", self.function, FUNCTIONS)

    @lazy
    def spec(self) -> MapSpec:
        """The map as plain numbers."""
        return MapSpec(self.function)


def elu1() -> Elementwise:
    r"""Return :math:`\phi(x) = \mathrm{elu}(x) + 1`: x + 1 for x > 0, else e^x.

    The map of "Transformers are RNNs" (Katharopoulos et al., 2020). It takes any dimension d and gives M = d positive
    features. It is computed as written, without the difference that loses small values in low precision.

    Returns
    -------
    Elementwise
        The map.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.features.elu1()(np.array([[-8.0, 0.0, 2.0]])).round(6)
    array([[3.35e-04, 1.00e+00, 3.00e+00]])
    """
    return Elementwise("elu1")


def relu() -> Elementwise:
    r"""Return :math:`\phi(x) = \max(x, 0)`.

    It takes any dimension d and gives M = d features. A query whose features are all 0 attends to nothing: its output
    is 0.

    Returns
    -------
    Elementwise
        The map.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> ka.features.relu()(np.array([[-8.0, 0.0, 2.0]]))
    array([[0., 0., 2.]])
    """
    return Elementwise("relu")


def exp() -> Elementwise:
    r"""Return :math:`\phi(x) = e^x`, coordinate by coordinate.

    It takes any dimension d and gives M = d positive features. Attention with it never overflows: the features' logs
    are kept apart.

    Returns
    -------
    Elementwise
        The map.

    Examples
    --------
    >>> import numpy as np
    >>> import kernattn as ka
    >>> phi = ka.features.exp()
    >>> phi(np.array([[0.0, 1.0]])).round(4)
    array([[1.    , 2.7183]])
    >>> phi.scaled(np.array([[1000.0, 1.0]])).log_scale
    array([[1000.,    1.]])
    """
    return Elementwise("exp")
