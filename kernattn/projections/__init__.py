"""Frequencies of random features, m rows in d dimensions: by function, by name or by spec."""

from __future__ import annotations

from kernattn._check import one_of
from kernattn.projections.base import Projection
from kernattn.projections.iid import Iid, iid
from kernattn.projections.norms import NORM_LAWS, NormLaw
from kernattn.projections.orthogonal import Orthogonal, orthogonal

__all__ = ["NORM_LAWS", "PROJECTIONS", "Iid", "NormLaw", "Orthogonal", "Projection", "iid", "orthogonal", "resolve"]

PROJECTIONS: dict[str, type[Projection]] = {"iid": Iid, "orthogonal": Orthogonal}


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
        If it is neither.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.projections.resolve("orthogonal")
    Orthogonal(method='qr', norms='chi')
    """
    if isinstance(projection, Projection):
        return projection
    return PROJECTIONS[one_of("projection", projection, PROJECTIONS)]()
