"""Frequencies of random features, m rows in d dimensions: by function, by name or by spec."""

from __future__ import annotations

from kernattn._runtime.checks import instance_of, one_of
from kernattn.projections._antithetic import Antithetic, antithetic
from kernattn.projections._base import Directed, Projection
from kernattn.projections._fastfood import Fastfood, fastfood
from kernattn.projections._hadamard import Hadamard, hadamard
from kernattn.projections._iid import Iid, iid
from kernattn.projections._kac import Kac, kac
from kernattn.projections._moment_matched import MomentMatched, moment_matched
from kernattn.projections._norm_law import NormLaw
from kernattn.projections._norms import NORM_LAWS
from kernattn.projections._orthogonal import Orthogonal, orthogonal
from kernattn.projections._orthogonalize import orthogonalize
from kernattn.projections._pairs import Pair
from kernattn.projections._quasi import Halton, Sobol, halton, sobol
from kernattn.projections._simplex import Simplex, simplex

__all__ = [
    "NORM_LAWS",
    "PROJECTIONS",
    "Antithetic",
    "Directed",
    "Fastfood",
    "Hadamard",
    "Halton",
    "Iid",
    "Kac",
    "MomentMatched",
    "NormLaw",
    "Orthogonal",
    "Pair",
    "Projection",
    "Simplex",
    "Sobol",
    "antithetic",
    "fastfood",
    "hadamard",
    "halton",
    "iid",
    "kac",
    "moment_matched",
    "orthogonal",
    "orthogonalize",
    "resolve",
    "simplex",
    "sobol",
]

PROJECTIONS: dict[str, type[Projection]] = {
    "antithetic": Antithetic,
    "fastfood": Fastfood,
    "hadamard": Hadamard,
    "halton": Halton,
    "iid": Iid,
    "kac": Kac,
    "moment_matched": MomentMatched,
    "orthogonal": Orthogonal,
    "simplex": Simplex,
    "sobol": Sobol,
}


def resolve(projection: str | Projection) -> Projection:
    """Return the spec that a projection stands for: PROJECTIONS[projection]() for a name, itself for a spec.

    Parameters
    ----------
    projection : str or Projection
        A name in `PROJECTIONS`, or a spec.

    Returns
    -------
    Projection
        The spec; for a name the one with default parameters.

    Raises
    ------
    ParameterError
        If there is no projection of that name.
    DTypeError
        If it is neither a name nor a spec.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.projections.resolve("orthogonal")
    Orthogonal(method='qr', norms='chi')
    """
    if isinstance(projection, str):
        return PROJECTIONS[one_of("projection", projection, PROJECTIONS)]()
    instance_of("projection", projection, Projection, "or the name of one")
    return projection


def __dir__() -> list[str]:
    return __all__
