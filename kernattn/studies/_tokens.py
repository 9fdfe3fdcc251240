"""Queries, keys and values of real tokens: photographs, digits, or the user's own."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.checks import shown
from kernattn.errors import DTypeError, EmptyInputError, ParameterError, ShapeError
from kernattn.studies._images import MOST_DIGITS, PATCH, digits, photograph, raster
from kernattn.studies._own_rows import read_arrays, read_rows
from kernattn.studies._seeds import stream

DIM = 16
MOST_TOKENS = 2**14  # of a photograph
ROWS = (".npy", ".csv", ".tsv")  # files that hold one array


@dataclass(frozen=True, eq=False)
class Tokens:
    """q (n, d), k (l, d), v (l, e) in float64, with where they come from in words, and a digest of the data."""

    source: str
    description: str
    q: Float64
    k: Float64
    v: Float64
    scale: float = 1.0
    digest: str = ""

    @property
    def name(self) -> str:
        """The dataset's name in records: two scales that differ have two names."""
        return f"{self.source}@{repr(self.scale).removesuffix('.0')}"

    @property
    def label(self) -> str:
        """A name of the numbers themselves: two files that differ have two labels."""
        return f"{self.source}-{self.digest[:8]}"

    def fewer(self, keys: int, seed: int) -> Tokens:
        """Return the tokens with at most so many of the keys, drawn at random."""
        if len(self.k) <= keys:
            return self
        at = np.sort(np.random.default_rng(stream(seed, "keys")).permutation(len(self.k))[:keys])
        return replace(self, k=self.k[at], v=self.v[at])

    def draw(self, count: int, rng: np.random.Generator) -> tuple[Float64, Float64, Float64]:
        """Return q, k and v of random tokens: so many keys, and as many queries if there are."""
        queries, keys = (rng.permutation(len(part))[:count] for part in (self.q, self.k))
        return self.q[queries], self.k[keys], self.v[keys]

    def scaled(self, scale: float) -> Tokens:
        """Return the tokens with queries and keys `scale` times as long: an inverse temperature of scale^2."""
        return replace(self, q=scale * self.q, k=scale * self.k, scale=scale * self.scale)


def _digest(*arrays: np.ndarray) -> str:
    """Return 16 hexadecimal digits of the SHA-256 of the numbers, as they were before anything was computed of them."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]


def _digits(count: int, rng: np.random.Generator) -> tuple[Float64, Float64]:
    """Return images (count, 64), and which digit each is: one-hot (count, 10)."""
    images, labels = digits()
    picked = rng.choice(len(images), size=count, replace=False)
    return images[picked], labels[picked]


SOURCES = {
    "china": f"{PATCH} × {PATCH} colour patches of china.jpg, row by row; values: the patches (whitened)",
    "flower": f"{PATCH} × {PATCH} colour patches of flower.jpg, row by row; values: their places (standardised)",
    "digits": "handwritten digits of 8 × 8 pixels; values: which digit it is (one-hot)",
}


class Whitening(NamedTuple):
    """The d leading principal axes of raw rows, on which each coordinate has mean 0 and variance 1."""

    centre: Float64
    axes: Float64  # (d, D)
    sizes: Float64

    @classmethod
    def of(cls, raw: Float64) -> Whitening:
        """Return the axes of raw rows (n, D)."""
        centre = raw.mean(axis=0)
        _, _, axes = np.linalg.svd(raw - centre, full_matrices=False)
        axes = axes[:DIM]
        axes *= np.sign(axes[np.arange(DIM), np.argmax(np.abs(axes), axis=1)])[:, None]  # the SVD leaves the signs open
        return cls(centre, axes, ((raw - centre) @ axes.T).std(axis=0))

    def __call__(self, raw: Float64) -> Float64:
        """Map (n, D) to (n, d)."""
        return np.asarray((raw - self.centre) @ self.axes.T / self.sizes)


def shipped_tokens(source: str, queries: int, keys: int, seed: int) -> Tokens:
    """Return tokens of one of the SOURCES: q = k = whitened patches of norm sqrt(d), values as the source says.

    Queries are keys at equal steps, so each of them sees itself. There are no learned projections.
    """
    raw, labels, _ = _draw_raw(source, queries, keys, seed)
    at = np.arange(queries) * keys // queries
    return _tokens(source, raw, labels, (raw, labels), at)


def unseen_tokens(source: str, keys: int, seed: int) -> Tokens:
    """Return tokens of a source, as many if there are, that are none of `shipped_tokens`, in coordinates of those."""
    raw, labels, rng = _draw_raw(source, keys, keys, seed)
    if source == "digits":
        images, all_labels = digits()
        left = ~(images[:, None] == raw).all(axis=-1).any(axis=-1)
        at = rng.permutation(np.flatnonzero(left))[:keys]
        other, of_other = images[at], all_labels[at]
    else:
        other, of_other = raster(photograph(source) / 255, keys, rng)
        left = (other != raw).any(axis=-1)  # patch i lies in box i
        other, of_other = other[left], of_other[left]
    return _tokens(source, other, of_other, (raw, labels), np.arange(len(other)))


Raw = tuple[Float64, Float64]
"""Pixels (n, D), and what the values are made of."""


def _draw_raw(source: str, queries: int, keys: int, seed: int) -> tuple[Float64, Float64, np.random.Generator]:
    """Return the raw tokens of a source, and the generator after them."""
    if source not in SOURCES:
        raise ParameterError(f"source must be one of {', '.join(SOURCES)}; got {shown(source)}")
    most = MOST_DIGITS if source == "digits" else MOST_TOKENS
    if not DIM < keys <= most or not 1 <= queries <= keys:
        raise ParameterError(
            f"keys must lie in {DIM + 1}..{most} and queries in 1..keys; got {keys} keys and {queries} queries"
        )
    rng = np.random.default_rng(stream(seed, f"tokens/{source}"))
    raw, labels = _digits(keys, rng) if source == "digits" else raster(photograph(source) / 255, keys, rng)
    return raw, labels, rng


def _tokens(source: str, raw: Float64, labels: Float64, by: Raw, at: np.ndarray) -> Tokens:
    """Return tokens in the coordinates of the raw ones that `by` has, of queries `at` these places."""
    whitened = Whitening.of(by[0])(raw)
    centred = (labels - by[1].mean(axis=0)) / by[1].std(axis=0) if source == "flower" else labels
    values = whitened if source == "china" else centred
    x = whitened * (DIM**0.5 / np.linalg.norm(whitened, axis=1, keepdims=True))
    return Tokens(source, SOURCES[source], x[at], x, values, digest=_digest(at, raw, labels))


def own_tokens(path: Path, queries: int, seed: int) -> Tokens:
    """Return tokens of a user's file: all keys, at most `queries` of the queries.

    An .npz holds q (n, d), k (l, d), v (l, e); a file of one array holds rows (n, d), and q = k = v.
    """
    arrays = _read(path)
    q, k, v = (_check(path, name, array) for name, array in arrays.items())
    digest = _digest(*arrays.values(), np.asarray(queries))
    if q.shape[1] != k.shape[1]:
        raise ShapeError(f"{path}: q and k must have as many columns; got shapes {q.shape} and {k.shape}")
    if k.shape[0] != v.shape[0]:
        raise ShapeError(f"{path}: k and v must have as many rows; got shapes {k.shape} and {v.shape}")
    if len(k) < 2:
        raise ShapeError(f"{path}: attention over fewer than two keys is no approximation problem; got {len(k)}")
    if len(q) > queries:
        picked = np.random.default_rng(stream(seed, "queries")).choice(len(q), size=queries, replace=False)
        described = f"{path.name}, {queries} of its {len(q)} queries drawn at random"
        return Tokens(path.stem, described, q[np.sort(picked)], k, v, digest=digest)
    return Tokens(path.stem, f"{path.name}, all queries", q, k, v, digest=digest)


def _read(path: Path) -> dict[str, np.ndarray]:
    names = ("q", "k", "v")
    return dict.fromkeys(names, read_rows(path)) if path.suffix.lower() in ROWS else read_arrays(path, names)


def _check(path: Path, name: str, array: np.ndarray) -> Float64:
    if array.dtype.kind != "f":
        raise DTypeError(f"{path}: {name} must be float16, float32 or float64; got {array.dtype}")
    if array.ndim != 2:
        raise ShapeError(f"{path}: {name} must have two axes, tokens and features; got shape {array.shape}")
    if 0 in array.shape:
        raise EmptyInputError(f"{path}: {name} is empty; got shape {array.shape}")
    if not np.all(np.isfinite(array)):
        raise ParameterError(f"{path}: {name} has values that are not finite")
    return array.astype(np.float64)
