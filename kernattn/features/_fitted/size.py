"""The size of a fitted map's weights, which attention's outputs leave free, and exact weights beside them do not."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log

import numpy as np

from kernattn._arrays.namespaces import Float64, without_flags
from kernattn._maps.spec import MapSpec
from kernattn._sums.row_scale import log_sum
from kernattn.features._fitted.map import Fitted

MOST = 32.0  # of the logarithm of an amplitude: float32 holds the features, and products of two


def lacking(phi: Fitted, q: Float64, k: Float64) -> Float64:
    r"""Return :math:`\log \sum_j k(q_i, k_j) - \log \sum_j \phi(q_i)^T \phi(k_j)` of each query, (n,)."""
    values, log_scale = phi.kernel._log_scaled_matrix(q, k)
    exact = np.log(np.sum(values, axis=-1)) + log_scale[..., 0]
    keys = log_sum(np, phi.scaled_key(k).log_scale.T).T  # (1, M)
    own = log_sum(np, phi.scaled_query(q).log_scale + keys)[..., 0]
    off: Float64 = exact - own
    return off


@without_flags
def sized(phi: Fitted, q: Float64, k: Float64) -> Fitted:
    """Return the map with such amplitudes that the median query has weights with the sum of the kernel's.

    Each side has half of the factor's logarithm. Outputs of linear attention stay, to rounding.
    """
    off = lacking(phi, q, k)
    half = float(np.median(off[np.isfinite(off)])) / 2 if np.isfinite(off).any() else 0.0
    queries, keys = (None if spec is None else _times(spec, half) for spec in (phi.queries, phi.keys))
    assert queries is not None
    return replace(phi, queries=queries, keys=keys)


def _times(spec: MapSpec, logarithm: float) -> MapSpec:
    """Return a map whose features are times a factor."""
    return replace(spec, amplitude=exp(min(MOST, max(-MOST, log(spec.amplitude) + logarithm))))
