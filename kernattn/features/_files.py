"""Maps from files."""

from __future__ import annotations

from os import PathLike

from kernattn._maps.chains import Chains
from kernattn._maps.record import read, type_name
from kernattn._maps.spec import MapSpec, QuadraticForm
from kernattn.errors import FileFormatError
from kernattn.features._base.map import FeatureMap
from kernattn.features._choose.table import ESTIMATORS
from kernattn.features._composite import Concatenated, ScaledMap, TensorProduct, Transformed
from kernattn.features._deterministic.cosformer import Cosformer
from kernattn.features._deterministic.elementwise import Elementwise
from kernattn.features._deterministic.linear import Linear
from kernattn.features._deterministic.quadrature import Quadrature
from kernattn.features._fitted.map import Fitted
from kernattn.features._hilbert.map import Hilbert
from kernattn.features._neurons.generalized import Generalized
from kernattn.features._nystrom.map import Nystrom
from kernattn.features._polynomial.taylor import Taylor2
from kernattn.features._spectral.skewed_chi2 import SkewedChi2Features
from kernattn.kernels import ALGEBRA, KERNELS
from kernattn.projections import PROJECTIONS

MAPS: tuple[type, ...] = (  # besides those of `ESTIMATORS`
    Concatenated,
    Cosformer,
    Elementwise,
    Fitted,
    Generalized,
    Hilbert,
    Linear,
    Nystrom,
    Quadrature,
    ScaledMap,
    SkewedChi2Features,
    Taylor2,
    TensorProduct,
    Transformed,
)


def known_types() -> dict[str, type]:
    """Return the classes that a file may hold, by `type_name`."""
    drawn = (row.cls for row in ESTIMATORS.values())
    parts = (cls for table in (ALGEBRA, KERNELS, PROJECTIONS) for cls in table.values())
    return {type_name(cls): cls for cls in (Chains, MapSpec, QuadraticForm, *MAPS, *drawn, *parts)}


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
    >>> phi = ka.random_features(ka.kernels.Softmax(), dim=4, num_features=8, rng=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     phi.save(pathlib.Path(folder) / "map.npz")
    ...     ka.load(pathlib.Path(folder) / "map.npz").fingerprint == phi.fingerprint
    True
    """
    value = read(path, known_types())
    if not isinstance(value, FeatureMap):
        raise FileFormatError(f"{path} holds a {type(value).__name__}, not a feature map")
    return value
