"""How the maps of each kind of kernels are made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from kernattn._runtime.checks import instance_of, shown
from kernattn._runtime.elsewhere import hint_at
from kernattn.errors import ParameterError
from kernattn.features._base.map import FeatureMap
from kernattn.features._choose.estimator import Request
from kernattn.features._choose.fit import LEARNED, asked_of, attempt, pick_winner
from kernattn.features._choose.polynomial import polynomial_features
from kernattn.features._choose.spectral import spectral_estimators, spectral_features
from kernattn.features._choose.table import draw, rows_of
from kernattn.features._composite.kernels import composite_features
from kernattn.features._data import Data, check_size
from kernattn.features._spectral.skewed_chi2 import SkewedChi2Features
from kernattn.features._spectral.spectra import check_axes, check_spectrum, is_convolution
from kernattn.kernels import (
    AdditiveChi2,
    ArcCosine,
    Kernel,
    Polynomial,
    Product,
    Scaled,
    Sech,
    SkewedChi2,
    Sum,
    Tanimoto,
)


class Family(NamedTuple):
    """The estimators of a kernel, in order, and the map that a request asks for, whose estimator may be "auto"."""

    estimators: Callable[[Any], tuple[str, ...]]
    make: Callable[[Request], FeatureMap]


def by_rows(request: Request) -> FeatureMap:
    """Return the map of the estimator that is asked for; by "auto" the first row that serves the kernel."""
    return draw(request, rows_of(request.kernel)[0] if request.estimator == "auto" else request.estimator)


def _of_logarithms(request: Request) -> FeatureMap:
    """Return the map of the skewed chi-squared kernel, the hyperbolic secant kernel of logarithms."""
    kernel, data = request.kernel, request.data
    check_axes(kernel, request.projection)
    if data is not None:
        kernel.check_domain("data", data.rows)
        data = Data(*(np.log(part + kernel.skewedness) for part in data))
    inner: Any = spectral_features(request._replace(kernel=Sech(), data=data))
    return SkewedChi2Features(kernel, inner)


def _sets_of(kernel: Tanimoto) -> tuple[str, ...]:
    """Return the estimators of the min-max kernel."""
    if kernel.form == "dot":
        raise ParameterError(
            "Tanimoto(form='dot') has no random features: take Tanimoto(), the same kernel of bits, or landmarks of "
            "kernattn.features.nystrom"
        )
    return rows_of(kernel)


def _by_values(request: Request) -> FeatureMap:
    """Return the map that is asked for; by "auto" that of counts, unless there are data that are none."""
    data, name = request.data, request.estimator
    if data is not None:
        request.kernel.check_domain("data", data.rows)
    if name == "auto":
        name = "minwise" if data is None or np.all(data.rows == np.floor(data.rows)) else "consistent"
    return draw(request, name)


def _composite(request: Request) -> FeatureMap:
    """Return the map of a composite kernel. Rows of a sum or product are not its members', nor their normalisers."""
    objective = request.objective if isinstance(request.kernel, Scaled) else "kernel"
    return composite_features(
        request.kernel,
        request.num_features,
        request.rng,
        lambda kernel, number: make(request._replace(kernel=kernel, num_features=number, objective=objective)),
    )


def _common(kernel: Sum | Product) -> tuple[str, ...]:
    """Return the names that all members have, in the order of the first one."""
    first, *rest = (estimators(member) for member in kernel.kernels)
    return tuple(name for name in first if all(name in names for names in rest))


SPECTRAL = Family(spectral_estimators, spectral_features)
COMPOSITE = Family(_common, _composite)
FAMILIES: dict[type[Kernel], Family] = {  # kernels that are not here need a spectral measure
    AdditiveChi2: Family(rows_of, by_rows),
    ArcCosine: Family(rows_of, by_rows),
    Polynomial: Family(rows_of, polynomial_features),
    Product: COMPOSITE,
    Scaled: Family(lambda kernel: estimators(kernel.kernel), _composite),
    SkewedChi2: Family(lambda kernel: spectral_estimators(Sech()), _of_logarithms),
    Sum: COMPOSITE,
    Tanimoto: Family(_sets_of, _by_values),
}


def estimators(kernel: Kernel) -> tuple[str, ...]:
    r"""Return the names of a kernel's estimators, maps with :math:`E\,\phi(x)^T \phi(y) = k(x, y)`.

    The first one is ``random_features(kernel, ..., estimator="auto")`` without data, where it exists with the number of
    features and the projection that are asked for. Sums and products have those that all their members have.

    Parameters
    ----------
    kernel : Kernel
        The kernel.

    Returns
    -------
    tuple of str
        Names of `kernattn.features.ESTIMATORS`.

    Raises
    ------
    DTypeError
        If kernel is no kernel.
    ParameterError
        If it has no random features.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.features.estimators(ka.kernels.Matern())
    ('trigonometric', 'phase')
    >>> ka.features.estimators(ka.kernels.Softmax())[:2]
    ('positive', 'hyperbolic')
    """
    return _family(kernel).estimators(kernel)


def make(request: Request) -> FeatureMap:
    """Return the map that is asked for."""
    family, kernel = _family(request.kernel), request.kernel
    name: object = request.estimator
    if name == LEARNED:
        return pick_winner(attempt(asked_of(request)))
    names, members_say = family.estimators(kernel), family.make is _composite
    if not isinstance(name, str) or not (name in ("auto", *names) or members_say):
        others = f" or one of {', '.join(names)}" if names else ""
        hint = hint_at("estimator", name, names)
        raise ParameterError(f"estimator must be 'auto'{others} for {shown(kernel)}; got {shown(name)}{hint}")
    spectral = family in (SPECTRAL, FAMILIES[SkewedChi2], FAMILIES[Scaled])
    if request.objective == "attention" and not spectral:
        raise ParameterError(
            f"objective 'attention' is for kernels that have a spectral measure, not for {shown(kernel)}: leave it out"
        )
    if request.data is not None:
        check_size(request.data.rows, kernel.input_scale(request.dim))
    return family.make(request)


def check_kernel(kernel: Kernel) -> None:
    """Raise unless it is a kernel."""
    instance_of("kernel", kernel, Kernel, "such as kernattn.kernels.Gaussian()")


def _family(kernel: Kernel) -> Family:
    check_kernel(kernel)
    if type(kernel) in FAMILIES and not is_convolution(kernel):
        return FAMILIES[type(kernel)]
    check_spectrum(kernel)
    return SPECTRAL
