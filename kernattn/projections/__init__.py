"""Projections: laws of the frequencies of random features, by name or as specs whose `draw` gives (m, d) arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import instance_of, one_of
from kernattn._runtime.deprecated import old_names
from kernattn._runtime.random import RNG
from kernattn.projections._antithetic import Antithetic
from kernattn.projections._base import DirectionalProjection, Projection
from kernattn.projections._fastfood import Fastfood
from kernattn.projections._hadamard import Hadamard
from kernattn.projections._iid import Iid
from kernattn.projections._kac import Kac
from kernattn.projections._moment_matched import MomentMatched
from kernattn.projections._norm_law import NormLaw
from kernattn.projections._norms import NORM_LAWS
from kernattn.projections._orthogonal import Orthogonal
from kernattn.projections._orthogonalize import orthogonalize
from kernattn.projections._pairs import Pair
from kernattn.projections._quasi import Halton, Sobol
from kernattn.projections._simplex import Simplex

__all__ = [
    "NORM_LAWS",
    "PROJECTIONS",
    "Antithetic",
    "DirectionalProjection",
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
    "orthogonalize",
    "resolve",
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


def _old_function(spec: type[Projection]) -> Callable[..., Float64]:
    """Return the function that drew with `spec` in 0.1: (m, d, rng=None, and the fields of the spec)."""

    def draw(m: int, d: int, rng: RNG = None, *args: Any, **kwargs: Any) -> Float64:
        return spec(*args, **kwargs).draw(m, d, rng)

    return draw


__getattr__ = old_names(
    __name__,
    {"Directed": "kernattn.projections.DirectionalProjection"}
    | {name: (f"{__name__}.{spec.__name__}().draw", _old_function(spec)) for name, spec in PROJECTIONS.items()},
)


def __dir__() -> list[str]:
    return __all__
