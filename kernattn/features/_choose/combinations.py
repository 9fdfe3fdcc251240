"""Which kernels, projections and estimators go together, and what is known of each: asked of the code, not listed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import positive_integer, shown
from kernattn.errors import NoClosedForm, ParameterError
from kernattn.features._base.map import FeatureMap
from kernattn.features._choose.factory import random_features
from kernattn.features._choose.table import ESTIMATORS
from kernattn.kernels import (
    ALGEBRA,
    KERNELS,
    ArcCosine,
    Gaussian,
    Kernel,
    Laplacian,
    Matern,
    Polynomial,
    Product,
    Scaled,
    Softmax,
    Sum,
)
from kernattn.projections import PROJECTIONS, Projection, resolve
from kernattn.projections._coupling import COUPLED_NORMS

REPRESENTATIVES: dict[type[Kernel], tuple[Kernel, ...]] = {  # of kernels whose default does not stand for all
    ArcCosine: (ArcCosine(0), ArcCosine(1), ArcCosine(2)),
    Matern: (Matern(0.5), Matern(1.5), Matern(2.5)),
    Polynomial: (Polynomial(degree=2, coef0=1.0),),
    Product: (Gaussian() * Matern(), Laplacian() * Softmax()),  # frequencies that add, and a tensor product
    Scaled: (2 * Laplacian(),),
    Sum: (Gaussian() + Matern(),),
}


class Combination(NamedTuple):
    """One cell of the table.

    Attributes
    ----------
    kernel : Kernel
        The kernel.
    projection : Projection
        The projection, with its norms.
    estimator : str
        Name of the estimator.
    status : str
        "variance" where mean and variance are known in closed form, "mean" where only the mean is, "near" where there
        is a map and neither is, "undefined" where there is none.
    reason : str
        Why the status is no better; "" for "variance".
    num_features : int or None
        A number of features that the map exists with; None where there is none.
    """

    kernel: Kernel
    projection: Projection
    estimator: str
    status: str
    reason: str
    num_features: int | None


def combinations(
    kernels: Sequence[Kernel] | None = None, projections: Sequence[str | Projection] | None = None, dim: int = 5
) -> tuple[Combination, ...]:
    r"""Return what is known of :math:`E\,\phi(x)^T \phi(y)` and its variance, kernel by projection by estimator.

    Every map is drawn and asked for its `mean` and `variance`; what refuses says why.

    Parameters
    ----------
    kernels : sequence of Kernel, optional
        The kernels; all of `kernattn.kernels` where they are not given, those with orders in several of them.
    projections : sequence of str or Projection, optional
        The projections; all of `kernattn.projections.PROJECTIONS`, each with every law of norms that it has, where they
        are not given.
    dim : int
        Input dimension d of the maps. Where it is no power of two, projections that pad drop what they padded.

    Returns
    -------
    tuple of Combination
        One for each kernel, projection and estimator, of the kernel or not.

    Raises
    ------
    ParameterError
        If kernels or projections are no sequences, a projection is none, or dim no positive integer.

    Examples
    --------
    >>> import kernattn as ka
    >>> table = ka.features.combinations([ka.kernels.Gaussian()], ["orthogonal", "sobol"])
    >>> [(c.projection, c.status) for c in table if c.estimator == "phase"]
    [(Orthogonal(method='qr', norms='chi'), 'variance'), (Sobol(norms='chi'), 'mean')]
    """
    dim = positive_integer("dim", dim)
    for name, given in ("kernels", kernels), ("projections", projections):
        if given is not None and (isinstance(given, str) or not isinstance(given, Sequence)):
            raise ParameterError(f"{name} must be a sequence; got {shown(given)}")
    rows = _kernels() if kernels is None else kernels
    columns = _projections() if projections is None else [resolve(projection) for projection in projections]
    return tuple(
        _combination_of(kernel, spec, name, dim) for kernel in rows for spec in columns for name in sorted(ESTIMATORS)
    )


def _kernels() -> list[Kernel]:
    return [kernel for kind in (KERNELS | ALGEBRA).values() for kernel in REPRESENTATIVES.get(kind) or (kind(),)]


def _projections() -> list[Projection]:
    return [spec for kind in PROJECTIONS.values() for spec in _with_norms(kind)]


def _with_norms(kind: type[Any]) -> Iterator[Projection]:
    if "norms" not in (field.name for field in fields(kind)):
        yield kind()
        return
    for norms in COUPLED_NORMS:
        try:
            yield kind(norms=norms)
        except ParameterError:
            continue


def _combination_of(kernel: Kernel, spec: Projection, name: str, dim: int) -> Combination:
    rows = np.concatenate([np.eye(dim), np.ones((1, dim)) / dim])
    refusals: list[str] = []
    for number in range(4 * dim, 8 * dim + 1):  # some maps exist with even, odd or few numbers of features only
        try:
            phi = random_features(kernel, dim, number, name, spec, rows, rng=0)
        except ParameterError as error:
            refusals.append(str(error))
            if refusals[-2:-1] == refusals[-1:]:
                break  # the same words again: it is not the number that is refused
            continue
        return Combination(kernel, spec, name, *_closed_forms(phi, rows), number)
    return Combination(kernel, spec, name, "undefined", refusals[-1].partition("; got ")[0], None)


def _closed_forms(phi: FeatureMap, rows: Float64) -> tuple[str, str]:
    try:
        phi.mean(rows, rows[::-1])
    except NoClosedForm as error:
        return "near", str(error)
    try:
        phi.variance(rows, rows[::-1])
    except NoClosedForm as error:
        return "mean", str(error)
    return "variance", ""
