"""An estimator: one way to make random features, as one row of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn.errors import ParameterError
from kernattn.features._base.map import FeatureMap
from kernattn.features._data import Data
from kernattn.features._spectral.spectra import check_normal
from kernattn.kernels import Kernel
from kernattn.projections import Projection, resolve


class Request(NamedTuple):
    """The arguments of `random_features`, checked."""

    kernel: Any  # a Kernel of some kind: tables tell which
    dim: int
    num_features: int
    estimator: str
    projection: Projection
    data: Data | None
    rng: np.random.Generator
    objective: str | None = None  # what "auto" with data chooses by, with these values and causally
    values: Float64 | None = None
    causal: bool = False


@final
@dataclass(frozen=True)
class Estimator:
    """One way to make random features: a row of `kernattn.features.ESTIMATORS`.

    Parameters
    ----------
    cls : type
        The class of its maps, whose ``_sample(kernel, frequencies, dim, rng, **parameters)`` draws one; `projection` is
        among the parameters unless `projected` is False.
    serves : callable
        Tells of a kernel whether it has this estimator.
    paired : bool
        Whether every frequency makes two features.
    projected : bool
        Whether a projection arranges its frequencies. Where none does, `projection` must be left at its default.
    normal : bool
        Whether its frequencies must be N(0, I), so that the projection's norms must be "chi".
    shared : bool
        Whether queries and keys have one map; "auto" takes another only for attention of queries and keys given apart.
    parameters : callable
        What `_sample` takes besides, from a `Request`: a dict by name.
    reason : callable
        What its errors come from, in a line that `recommend` prints: from the kernel and the ratios
        :math:`e^{|x + y|^2} / M` and :math:`e^{|x - y|^2} / M` at the median.
    """

    cls: type[Any]
    serves: Callable[[Kernel], bool]
    paired: bool = False
    projected: bool = True
    normal: bool = False
    shared: bool = True
    parameters: Callable[[Request], dict[str, Any]] = lambda request: {}
    reason: Callable[[Kernel, float, float], str] = lambda kernel, sums, differences: ""

    def frequencies(self, num_features: int) -> int:
        """Return how many frequencies make so many features."""
        return num_features // 2 if self.paired else num_features

    def draw(self, request: Request) -> FeatureMap:
        """Draw the map that is asked for; `estimator` of the request is the row's name."""
        name, number = request.estimator, request.num_features
        if self.paired and number % 2:
            raise ParameterError(f"estimator {name!r} makes features in pairs: num_features must be even; got {number}")
        if not self.projected and request.projection != resolve("orthogonal"):
            raise ParameterError(
                f"estimator {name!r} draws no frequencies that a projection could arrange: leave projection at its "
                f"default; got {request.projection!r}"
            )
        if self.normal:
            check_normal(request.projection, name)
        parameters = {"projection": request.projection} if self.projected else {}
        parameters |= self.parameters(request)
        phi: FeatureMap = self.cls._sample(
            request.kernel, self.frequencies(number), request.dim, request.rng, **parameters
        )
        return phi
