"""What is recorded of a layer: a reservoir of sequences, of which no more are kept than were asked for."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernattn._arrays.namespaces import Array, to_numpy64
from kernattn.errors import ParameterError

Rows = NDArray[np.float32]


class Sequence(NamedTuple):
    """Heads of a sequence: queries in groups, and what they attend to."""

    q: Rows  # (h, g, n, d)
    k: Rows  # (h, n, d)
    v: Rows  # (h, n, e)


class Place(NamedTuple):
    """What a layer's attention is, besides its rows."""

    causal: bool
    scale: float


class Recorder:
    """Queries, keys and values of every layer, as a model calls its attention (Vitter 1985: reservoir sampling).

    Every layer keeps the same sequences, and the first `length` tokens of each.
    """

    def __init__(self, sequences: int, length: int, seed: int, done: set[str]) -> None:
        self.kept: dict[str, list[Sequence]] = {}
        self.places: dict[str, Place] = {}
        self._sizes, self._seed, self._done = (sequences, length), seed, done
        self._seen: dict[str, tuple[np.random.Generator, list[int]]] = {}

    def take(self, name: str, q: Array, k: Array, v: Array, key_mask: Array | None, causal: bool, scale: float) -> None:
        """Keep some sequences of a call: q (..., h, [g,] n, d), k and v (..., h, [1,] l, d), key_mask (..., l)."""
        place = self.places.setdefault(name, Place(bool(causal), float(scale)))
        if place != (causal, scale):
            raise ParameterError(f"attention of {name} must be of one kind; got {place} and {Place(causal, scale)}")
        if name in self._done:
            return
        grouped = k.ndim > 3 and k.shape[-3] == 1 != q.shape[-3]
        mask = None if key_mask is None else np.asarray(to_numpy64(key_mask), bool)
        heads = [_heads(x, grouped) for x in (q, k, v)]
        kept = self.kept.setdefault(name, [])
        rng, seen = self._seen.setdefault(name, (np.random.default_rng([self._seed, 1]), [0]))
        rows = None if mask is None else mask.reshape(-1, mask.shape[-1])
        for at in range(heads[0].shape[0]):
            here = None if rows is None else rows[at if len(rows) > 1 else 0]
            if not (heads[1].shape[-2] if here is None else here.any()):
                continue  # padding alone
            slot = seen[0] if seen[0] < self._sizes[0] else int(rng.integers(seen[0] + 1))
            seen[0] += 1
            if slot >= self._sizes[0]:
                continue
            kept[slot : slot + 1] = [self._cut(name, [x[at] for x in heads], here)]

    def _cut(self, name: str, heads: list[Any], mask: Any) -> Sequence:
        """Return the first tokens of a sequence, those that are masked left out."""
        q, k, v = heads
        if mask is not None:
            q = q[..., mask, :] if q.shape[-2] == len(mask) else q
            k, v = k[..., mask, :], v[..., mask, :]
        q, k, v = (np.array(to_numpy64(x[..., : self._sizes[1], :]), np.float32) for x in (q, k, v))
        for part, x in zip("qkv", (q, k, v), strict=True):
            if not np.isfinite(x).all():
                raise ParameterError(f"{part} of {name} must be finite; a sequence has NaN or infinity")
        return Sequence(q, k[:, 0], v[:, 0])


def _heads(x: Array, grouped: bool) -> Any:
    """Return heads as (B, h, g, n, d)."""
    x = x if grouped else x[..., None, :, :]
    return x.reshape(-1, *x.shape[-4:])
