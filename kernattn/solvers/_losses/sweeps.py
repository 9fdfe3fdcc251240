"""Sweeps over the features of rows, which are kept while there are few enough, and else made anew by blocks."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.csr import take_rows
from kernattn._arrays.namespaces import Array, Float64, constant, namespace, to_numpy64
from kernattn._arrays.shapes import strips
from kernattn.errors import EmptyInputError
from kernattn.features import FeatureMap, Linear
from kernattn.solvers._check import features_of, widen
from kernattn.solvers._losses.labels import Blocks
from kernattn.solvers._spectrum import BLOCK

KEPT = 1 << 27  # features that are kept for all sweeps: 1 GiB
STRIP = 1 << 18  # features that are multiplied twice while they are in cache


class Part(NamedTuple):
    """Features of some rows."""

    here: slice
    features: Array


class Held(NamedTuple):
    """Rows whose features are given."""

    features: NDArray[Any]  # (n, M), M = 0 of rows that are all alike

    def parts(self) -> Iterator[Part]:
        """Walk over the features."""
        for here in strips(len(self.features), STRIP // max(1, self.features.shape[1])):
            yield Part(here, self.features[here])

    def take(self, rows: NDArray[np.intp], dtype: type[np.floating[Any]] = np.float64) -> NDArray[Any]:
        """Return the features of some rows, which are sorted: to be read only."""
        return _take(self.features, rows, dtype)


class Sweeps:
    """Rows in blocks, with their labels and weights on the host; features are made by the first sweep."""

    def __init__(self, phi: FeatureMap, blocks: Blocks, backend: str | None) -> None:
        self._phi, self._blocks, self._backend = phi, blocks, backend
        self._given = backend is None and _keeps_rows(phi)
        self.told = [(y, np.ones(len(y)) if shares is None else shares) for _, y, shares in blocks()]
        if not self.told:
            raise EmptyInputError("blocks must hold rows; there was no block")
        labels, weights = zip(*self.told, strict=True)
        self.labels: NDArray[Any] = np.concatenate(labels)
        self.weights: Float64 = np.concatenate(weights)
        self._kept: list[Part] | None = None
        self._taken: tuple[NDArray[np.intp], NDArray[Any]] | None = None

    def blocks(self) -> Iterator[Part]:
        """Walk over the features, in float64, as many rows at once as they were made of."""
        for here, features in self._walk():
            yield Part(here, widen(features) if isinstance(features, np.ndarray) else features)

    def parts(self) -> Iterator[Part]:
        """Walk over the features, in float64, a few rows at a time."""
        for here, features in self._walk():
            host = isinstance(features, np.ndarray)
            for some in strips(features.shape[0], STRIP // features.shape[1] if host else None):
                part = features[some, ...]
                part = part.astype(np.float64, copy=False) if host else part
                yield Part(slice(here.start + some.start, here.start + some.stop), part)

    def take(self, rows: NDArray[np.intp], dtype: type[np.floating[Any]] = np.float64) -> NDArray[Any]:
        """Return the features (k, M) of some rows, which are sorted, on the host: to be read only."""
        if self._taken is None or self._taken[1].dtype != dtype or not np.array_equal(self._taken[0], rows):
            if self._kept is not None:
                held = ((part.here.start, part.features) for part in self._kept)
                parts = [_take(features, some, dtype) for features, some in _pick(held, rows)]
            else:
                made = (self._features(take_rows(x, some)) for x, some in _pick(self._rows(), rows))
                parts = [_take(features, slice(None), dtype) for features in made]
            self._taken = rows, parts[0] if len(parts) == 1 else np.concatenate(parts)
        return self._taken[1]

    def _walk(self) -> Iterable[Part]:
        return self._make() if self._kept is None else self._kept

    def _make(self) -> Iterator[Part]:
        kept: list[Part] | None = []
        held = 0
        for begin, x in self._rows():
            for here in strips(x.shape[0], BLOCK // self._phi.num_features_of(x.shape[1])):
                features = self._features(x[here, ...])
                part = Part(slice(begin + here.start, begin + here.stop), features)
                held += features.shape[0] * features.shape[1]
                kept = None if kept is None or held > KEPT else [*kept, part]
                yield part
        self._kept = kept

    def _rows(self) -> Iterator[tuple[int, Any]]:
        """Walk over blocks of rows, with the number of the first."""
        begin = 0
        for x, _, _ in self._blocks():
            yield begin, x
            begin += x.shape[0]

    def _features(self, x: Any) -> Array:
        if self._given and isinstance(x, np.ndarray):  # rows are their features, which are only read: no copy
            return np.ascontiguousarray(x)
        return features_of(self._phi, x, self._backend)


def _pick(blocks: Iterable[tuple[int, Any]], rows: NDArray[np.intp]) -> Iterator[tuple[Any, NDArray[np.intp]]]:
    """Yield the blocks that hold some of the rows, each with the numbers of these in it; it comes with its first's."""
    for begin, block in blocks:
        low, high = np.searchsorted(rows, (begin, begin + block.shape[0]))
        if low < high:
            yield block, rows[low:high] - begin


def _take(features: Array, rows: Any, dtype: type[np.floating[Any]]) -> NDArray[Any]:
    """Return some rows on the host, in another dtype."""
    if not isinstance(features, np.ndarray):
        some = features if isinstance(rows, slice) else take_rows(features, rows)
        return to_numpy64(some).astype(dtype, copy=False)
    if isinstance(rows, slice):
        return features.astype(dtype, copy=False)
    out = np.empty((len(rows), features.shape[1]), dtype)
    for here in strips(len(rows), STRIP // max(1, features.shape[1])):
        out[here] = features[rows[here]]
    return out


def _keeps_rows(phi: FeatureMap) -> bool:
    """Return whether the features of rows are the rows."""
    return isinstance(phi, Linear) and bool(np.all((phi.center == 0) & (phi.lengthscale == 1)))


def times(left: Array, right: Float64) -> Float64:
    """Return left @ right on the host, made where left is."""
    if isinstance(left, np.ndarray):
        return np.asarray(left @ right.astype(left.dtype, copy=False), np.float64)
    xp = namespace(left=left)
    return to_numpy64(xp.matmul(left, constant(xp, right, left.dtype, left)))


def turned_times(left: Array, right: Float64) -> Float64:
    """Return left^T @ right on the host, made where left is."""
    return times(left.T if isinstance(left, np.ndarray) else namespace(left=left).matrix_transpose(left), right)
