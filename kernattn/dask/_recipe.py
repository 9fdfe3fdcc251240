"""Maps on their way to workers: as the few numbers that they are drawn from, or once as a key of the graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, final

from dask import delayed
from dask.delayed import Delayed

from kernattn._maps.record import fingerprint
from kernattn._runtime.checks import instance_of, one_of, positive_integer, whole_number
from kernattn._runtime.random import generator
from kernattn.errors import StateMismatchError
from kernattn.features import FeatureMap, estimators, random_features
from kernattn.kernels import Kernel
from kernattn.ops.dispatch import check_backend
from kernattn.projections import Projection, resolve


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
    estimator, projection : object
        As in `kernattn.random_features`. What is chosen by data has no recipe: give the map itself.
    rng : int, optional
        The seed. Without one the recipe takes a fresh seed, and keeps it.

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
    rng: int | None = None

    def __post_init__(self) -> None:
        """Check what two workers could otherwise read differently."""
        if self.rng is None:
            object.__setattr__(self, "rng", int(generator(None).integers(2**63)))
        instance_of("kernel", self.kernel, Kernel)
        positive_integer("dim", self.dim)
        positive_integer("num_features", self.num_features)
        one_of("estimator", self.estimator, ("auto", *estimators(self.kernel)))
        resolve(self.projection)
        whole_number("rng", self.rng)

    def map(self) -> FeatureMap:
        """Return the map: the one that `kernattn.random_features` draws from the same arguments."""
        return _map(self)


@lru_cache(maxsize=8)
def _map(recipe: Recipe) -> FeatureMap:
    return random_features(
        recipe.kernel, recipe.dim, recipe.num_features, recipe.estimator, recipe.projection, rng=recipe.rng
    )


class SentMap(NamedTuple):
    """A map here, and what stands for it in tasks."""

    here: FeatureMap
    source: Recipe | str  # the recipe, or the key of the map itself
    reads: tuple[Delayed, ...]  # collections that hold that key

    @property
    def arguments(self) -> tuple[Recipe | str, int]:
        """What `map_on_worker` takes."""
        return self.source, self.here.fingerprint


def send_map(phi: FeatureMap | Recipe, backend: str | None) -> SentMap:
    """Return a map as it travels: by its recipe, or as one key of the graph."""
    check_backend(backend)
    if isinstance(phi, Recipe):
        return SentMap(phi.map(), phi, ())
    instance_of("phi", phi, FeatureMap)
    key = f"kernattn-map-{fingerprint(phi)}"  # of the content: learnt maps carry the fingerprint of their draw
    return SentMap(phi, key, (delayed(phi, name=key, traverse=False),))


def map_on_worker(source: FeatureMap | Recipe, fingerprint: int) -> FeatureMap:
    """Return the map on a worker, which must be the one that was sent."""
    phi = source.map() if isinstance(source, Recipe) else source
    if phi.fingerprint != fingerprint:
        raise StateMismatchError(
            "the map is another one on this worker: its linear algebra rounds otherwise, where a recipe was sent: "
            f"send the map itself; or the map holds a function that has no name in kernattn; got {phi!r}"
        )
    return phi


def call_with_map(
    function: Callable[..., Any], source: FeatureMap | Recipe, fingerprint: int, backend: str | None, *arrays: Any
) -> Any:
    """Return ``function(*arrays, phi, backend=backend)`` on a worker."""
    return function(*arrays, map_on_worker(source, fingerprint), backend=backend)
