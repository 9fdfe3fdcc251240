"""Projections: the frequencies of random features."""

from __future__ import annotations

from kernattn.errors import ParameterError
from kernattn.projections.base import Projection
from kernattn.projections.iid import Iid, iid
from kernattn.projections.norms import NORM_LAWS, NormLaw
from kernattn.projections.orthogonal import Orthogonal, orthogonal

__all__ = [
    "NORM_LAWS",
    "PROJECTIONS",
    "Iid",
    "NormLaw",
    "Orthogonal",
    "Projection",
    "iid",
    "orthogonal",
    "resolve",
]

PROJECTIONS: dict[str, type[Projection]] = {"iid": Iid, "orthogonal": Orthogonal}


def resolve(projection: str | Projection) -> Projection:
    """Return the projection that a name of `PROJECTIONS` stands for; a spec is returned as it is.

    Parameters
    ----------
    projection : str or Projection
        A name, or a spec.

    Returns
    -------
    Projection
        The spec.

    Raises
    ------
    ParameterError
        If it is neither.

    Examples
    --------
    >>> import kernattn as ka
    >>> ka.projections.resolve("orthogonal")
    Orthogonal(norms='chi', method='qr')
    """
    if isinstance(projection, Projection):
        return projection
    if projection not in PROJECTIONS:
        raise ParameterError(f"projection must be a Projection or one of {', '.join(PROJECTIONS)}; got {projection!r}")
    return PROJECTIONS[projection]()
