"""Moments of Dask arrays: many chunks folded by a task, and the sums of tasks by a tree of fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isnan
from operator import add
from typing import Any, cast

from kernattn._arrays.namespaces import check_floating
from kernattn._runtime.checks import one_of, positive_integer
from kernattn._runtime.deprecated import old_order, old_positions
from kernattn.dask._arrays import check_lazy, whole_rows
from kernattn.dask._graph import Tasks, key_of
from kernattn.dask._recipe import Recipe, map_on_worker, send_map
from kernattn.dask._trees import add_pairs
from kernattn.errors import EmptyInputError, KernattnError, ShapeError
from kernattn.features import FeatureMap
from kernattn.solvers import Moments, initial_moments
from kernattn.solvers._moments import add_to
from kernattn.solvers._sums import PRODUCTS, check_rows, sum_rows


@old_order((FeatureMap, Recipe), "phi")
@old_positions("y")
def moments(
    x: Any,
    phi: FeatureMap | Recipe,
    *,
    y: Any = None,
    weights: Any = None,
    fold: int = 16,
    products: str = "float64",
    backend: str | None = None,
) -> Any:
    r"""Return the moments of a Dask array, :math:`G = \sum_i w_i \phi(x_i) \phi(x_i)^T` and the others, lazily.

    A task adds `fold` chunks to one sum, one after the other, and neighbouring sums are added by pairs. This order
    depends on the chunks and `fold` alone, so that any schedule gives the same bits, also one in which workers are lost
    and their tasks run again; machines are to be of one kind, with as many threads (KERNATTN_NUM_THREADS) each.
    A task holds its chunks, and at its peak five times M^2 numbers of 8 bytes.

    Parameters
    ----------
    x : (n, d) dask.array.Array
        Rows, of unknown number where need be. Chunks that divide d are put together.
    phi : FeatureMap or Recipe
        The map; of an asymmetric one, the queries' features.
    y : (n,) or (n, c) dask.array.Array, optional
        Targets.
    weights : (n,) dask.array.Array, optional
        Weights of the rows, as `kernattn.solvers.moments` takes them.
    fold : int
        Chunks that a task adds up. More of them leave fewer sums to keep and to move, and less to do at once.
    products : {"float64", "float32"}
        As in `kernattn.solvers.moments`.
    backend : {None, "reference", "cpu", "gpu"}
        Which implementation runs on workers; None chooses the fastest for their arrays.

    Returns
    -------
    dask.delayed.Delayed
        What ``compute()`` makes `kernattn.solvers.Moments` of; several are best computed at once, by `dask.compute`.

    Examples
    --------
    >>> import dask.array as da
    >>> import kernattn as ka
    >>> import kernattn.dask
    >>> x = da.random.default_rng(0).standard_normal((10_000, 3), chunks=(500, -1))
    >>> recipe = ka.dask.Recipe(ka.kernels.Gaussian(), dim=3, num_features=64, rng=0)
    >>> m = ka.dask.moments(x, recipe, y=x[:, 0]).compute()
    >>> m.n, ka.solvers.ridge(m).weights.shape
    (10000, (64,))
    """
    check_lazy("x", x)
    sent = send_map(phi, backend)
    sent.here._check(x)
    if x.ndim != 2:
        raise ShapeError(f"x must be (n, d); got shape {x.shape}")
    one_of("products", products, PRODUCTS)
    fold = positive_integer("fold", fold)
    given = (("y", y), ("weights", weights))
    rows = [whole_rows("x", x), *(array if array is None else _align(name, array, x) for name, array in given)]
    targets = None if y is None else 0 if y.ndim == 1 else y.shape[1]
    put = Tasks("moments", [*sent.reads, *(a for a in rows if a is not None)], phi, rows, fold, products, backend)
    chunks = [[None if a is None else key_of(a, (i, 0)[: a.ndim]) for a in rows] for i in range(x.numblocks[0])]
    sums = [
        put(_fold, *sent.arguments, i, chunks[i : i + fold], targets, x.shape[1], products, backend)
        for i in range(0, len(chunks), fold)
    ]
    return put.value(put(_restore_map, *sent.arguments, add_pairs(partial(put, add), sums)))


def _align(name: str, array: Any, x: Any) -> Any:
    """Check targets or weights, and return them in the chunks of x."""
    check_lazy(name, array)
    check_floating(name, array)
    known = not any(map(isnan, (*x.shape[:1], *array.shape[:1])))
    fits = array.shape[:1] == x.shape[:1] if known else array.numblocks[:1] == x.numblocks[:1]
    if not fits or array.ndim not in ((1, 2) if name == "y" else (1,)):
        wanted = f"({x.shape[0]},) or ({x.shape[0]}, c)" if name == "y" else f"({x.shape[0]},)"
        given = f"{array.shape} in {array.numblocks[0]} chunks" if array.ndim else "()"
        raise ShapeError(f"{name} must be {wanted}, as x is {x.shape} in {x.numblocks[0]} chunks; got shape {given}")
    if 0 in array.shape:
        raise EmptyInputError(f"{name} must not be empty; got shape {array.shape}")
    if array.ndim == 2:
        array = whole_rows(name, array)
    return array.rechunk({0: x.chunks[0]}) if known else array


@dataclass(frozen=True)
class MapLeftOut:
    """Stands for a map in moments that travel."""

    fingerprint: int


def _fold(
    source: FeatureMap | Recipe,
    fingerprint: int,
    first: int,
    chunks: Sequence[Sequence[Any]],  # x, y and weights
    targets: int | None,
    dim: int,
    products: str,
    backend: str | None,
) -> Moments:
    """Return the moments of chunks, each added in place to those before it."""
    phi, sums = map_on_worker(source, fingerprint), None
    for i, (x, y, weights) in enumerate(chunks, first):
        if len(x):
            try:
                part = sum_rows(check_rows(phi, x, y, weights, products, backend))
            except KernattnError as error:
                error.add_note(f"in chunk {i}, counted from 0")
                raise
            sums = part if sums is None else add_to(sums, part)
    if sums is None:
        sums = initial_moments(phi, targets=targets, dim=dim)
    return replace(sums, phi=cast(FeatureMap, MapLeftOut(fingerprint)))


def _restore_map(source: FeatureMap | Recipe, fingerprint: int, sums: Moments) -> Moments:
    """Return moments that have travelled, of the map again."""
    return replace(sums, phi=map_on_worker(source, fingerprint))
