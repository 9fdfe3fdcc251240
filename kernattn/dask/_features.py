"""Features of Dask arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernattn._arrays.namespaces import Array
from kernattn._runtime.deprecated import old_order
from kernattn.dask._arrays import check_lazy, whole_rows
from kernattn.dask._recipe import Recipe, map_on_worker, send_map
from kernattn.features import FeatureMap


@old_order((FeatureMap, Recipe), "phi")
def features(x: Any, phi: FeatureMap | Recipe, *, backend: str | None = None) -> Any:
    r"""Return features :math:`\phi(x)` of a Dask array, (..., n, M), chunk by chunk, lazily, in the dtype of x.

    A recipe goes to workers in place of the map, and each draws it once; a map itself goes once, as a key of the graph.

    Parameters
    ----------
    x : (..., n, d) dask.array.Array
        Rows, of unknown number where need be. Chunks that divide the last axis are put together.
    phi : FeatureMap or Recipe
        The map; of an asymmetric one, the queries' features.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs on workers; None chooses the fastest for their arrays.

    Examples
    --------
    >>> import dask.array as da
    >>> import kernattn as ka
    >>> import kernattn.dask
    >>> recipe = ka.dask.Recipe(ka.kernels.Gaussian(), dim=3, num_features=64, rng=0)
    >>> ka.dask.features(da.ones((1000, 3), chunks=(100, -1)), recipe)
    dask.array<_features, shape=(1000, 64), dtype=float64, chunksize=(100, 64), chunktype=numpy.ndarray>
    """
    check_lazy("x", x)
    sent = send_map(phi, backend)
    sent.here._check_shared()
    sent.here._check(x)
    x = whole_rows("x", x)
    chunks = (*x.chunks[:-1], (sent.here.num_features_of(x.shape[-1]),))
    source, fingerprint = sent.reads[0] if sent.reads else sent.source, sent.here.fingerprint
    return x.map_blocks(_features, source, fingerprint, backend, dtype=x.dtype, chunks=chunks, meta=x._meta)


def _features(x: Array, source: FeatureMap | Recipe, fingerprint: int, backend: str | None) -> Array:
    phi = map_on_worker(source, fingerprint)
    if 0 in x.shape:
        return np.empty((*x.shape[:-1], phi.num_features_of(x.shape[-1])), x.dtype)
    return phi(x, backend=backend)
