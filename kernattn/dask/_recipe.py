"""Maps on their way to workers: as the few numbers that they are drawn from, or once as a key of the graph."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, final

from dask import delayed
from dask.delayed import Delayed

from kernattn._runtime.checks import instance_of, positive_integer, whole_number
from kernattn.errors import StateMismatchError
from kernattn.features import FeatureMap, random_features
from kernattn.kernels import Kernel
from kernattn.projections import Projection


@final
@dataclass(frozen=True)
class Recipe:
    r"""A map as what it is drawn from, :math:`\phi = draw(k, d, M, seed)`: some hundred bytes in place of M d numbers.

    Functions of `kernattn.dask` take it in place of a map. Each worker draws the map once, and keeps it.

    Parameters
    ----------
    kernel : Kernel
        The kernel to estimate.
    dim : int
        Input dimension d.
    num_features : int
        Number M of features.
    estimator : str
        As in `kernattn.random_features`. What is chosen by data has no recipe: give the map itself.
    projection : str or Projection
        As in `kernattn.random_features`.
    rng : int
        The seed.

    Raises
    ------
    DTypeError, ParameterError
        If a number does not fit; `map` checks the others.

    Examples
    --------
    >>> import kernattn as ka
    >>> import kernattn.dask
    >>> recipe = ka.dask.Recipe(ka.kernels.Gaussian(), dim=3, num_features=64, rng=7)
    >>> recipe.map().fingerprint == ka.random_features(ka.kernels.Gaussian(), 3, 64, rng=7).fingerprint
    True
    """

    kernel: Kernel
    dim: int
    num_features: int
    estimator: str = "auto"
    projection: str | Projection = "orthogonal"
    rng: int = 0

    def __post_init__(self) -> None:
        """Check what two workers could otherwise read differently."""
        instance_of("kernel", self.kernel, Kernel)
        positive_integer("dim", self.dim)
        positive_integer("num_features", self.num_features)
        whole_number("rng", self.rng)

    def map(self) -> FeatureMap:
        """Return the map: the one that `kernattn.random_features` draws from the same arguments."""
        return _map(self)


@lru_cache(maxsize=8)
def _map(recipe: Recipe) -> FeatureMap:
    return random_features(
        recipe.kernel, recipe.dim, recipe.num_features, recipe.estimator, recipe.projection, rng=recipe.rng
    )


class Sent(NamedTuple):
    """A map here, and what stands for it in tasks."""

    here: FeatureMap
    source: Recipe | str  # the recipe, or the key of the map itself
    reads: tuple[Delayed, ...]  # collections that hold that key

    @property
    def arguments(self) -> tuple[Recipe | str, int]:
        """What `drawn` takes on a worker."""
        return self.source, self.here.fingerprint


def sent(phi: FeatureMap | Recipe) -> Sent:
    """Return a map as it travels: by its recipe, or as one key of the graph."""
    if isinstance(phi, Recipe):
        return Sent(phi.map(), phi, ())
    instance_of("phi", phi, FeatureMap)
    key = f"kernattn-map-{phi.fingerprint}"
    return Sent(phi, key, (delayed(phi, name=key, traverse=False),))


def drawn(source: FeatureMap | Recipe, fingerprint: int) -> FeatureMap:
    """Return the map on a worker, which must be the one that was sent."""
    phi = source.map() if isinstance(source, Recipe) else source
    if phi.fingerprint != fingerprint:
        raise StateMismatchError(
            "the map is another one on this worker: its linear algebra rounds otherwise, where a recipe was sent: "
            f"send the map itself; or the map holds a function that has no name in kernattn; got {phi!r}"
        )
    return phi
