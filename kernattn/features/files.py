"""Maps from files."""

from __future__ import annotations

from os import PathLike
from typing import Any

from kernattn.errors import FileFormatError
from kernattn.features.arccosine import ArcCosineFeatures
from kernattn.features.base import FeatureMap
from kernattn.features.chi2 import AdditiveChi2Features, SkewedChi2Features
from kernattn.features.composite import Concatenated, Multiple, Tensor
from kernattn.features.elementwise import Elementwise
from kernattn.features.factory import ESTIMATORS
from kernattn.features.generalized import Generalized
from kernattn.features.nystrom import Nystrom
from kernattn.features.polynomial import Polynomial
from kernattn.features.polynomial_estimators import POLYNOMIAL_ESTIMATORS
from kernattn.features.quadrature import Quadrature
from kernattn.features.record import read, type_name
from kernattn.features.taylor import Taylor2
from kernattn.kernels import ALGEBRA, KERNELS
from kernattn.ops.chains import Chains
from kernattn.projections import PROJECTIONS

__all__ = ["load"]

MAPS: tuple[type, ...] = (
    AdditiveChi2Features,
    ArcCosineFeatures,
    Concatenated,
    Elementwise,
    Generalized,
    Multiple,
    Nystrom,
    Polynomial,
    Quadrature,
    SkewedChi2Features,
    Taylor2,
    Tensor,
)
TABLES: tuple[dict[str, Any], ...] = (ALGEBRA, ESTIMATORS, KERNELS, POLYNOMIAL_ESTIMATORS, PROJECTIONS)
TYPES: dict[str, type] = {
    type_name(cls): cls for cls in (Chains, *MAPS, *(cls for table in TABLES for cls in table.values()))
}


def load(path: str | PathLike[str]) -> FeatureMap:
    """Return the map that `FeatureMap.save` wrote: the same features, bit by bit, and the same states.

    Parameters
    ----------
    path : str or PathLike
        The .npz file; it is read without pickle.

    Returns
    -------
    FeatureMap
        The map.

    Raises
    ------
    FileFormatError
        If the file is damaged or not one of kernattn's.
    FileNotFoundError
        If there is no such file.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import kernattn as ka
    >>> phi = ka.random_features(ka.kernels.Softmax(), dim=4, num_features=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     phi.save(pathlib.Path(folder) / "map.npz")
    ...     ka.load(pathlib.Path(folder) / "map.npz").draw == phi.draw
    True
    """
    value = read(path, TYPES)
    if not isinstance(value, FeatureMap):
        raise FileFormatError(f"{path} holds a {type(value).__name__}, not a feature map")
    return value
