"""Sizes of what is raced."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

DTYPES = {"bfloat16": 2, "float16": 2, "float32": 4, "tf32": 4, "float64": 8}  # bytes; tf32: float32, products rounded


@dataclass(frozen=True)
class Sizes:
    """Sizes of the inputs: q, k and v are (batch, heads, n, dim); `features` is the m of FAVOR+."""

    batch: int = 1
    heads: int = 8
    n: int = 4096
    dim: int = 64
    features: int = 256
    dtype: str = "float32"
    seed: int = 0

    def but(self, **others: Any) -> Self:
        """Return the sizes with others in place of some."""
        return replace(self, **others)

    @property
    def array_dtype(self) -> str:
        """The dtype of the arrays."""
        return "float32" if self.dtype == "tf32" else self.dtype

    @property
    def itemsize(self) -> int:
        """Bytes of one number of the arrays."""
        return DTYPES[self.dtype]

    @property
    def state_itemsize(self) -> int:
        """Bytes of one number of a state."""
        return 8 if self.dtype == "float64" else 4

    @property
    def sequences(self) -> int:
        """Heads of all batches."""
        return self.batch * self.heads

    @property
    def tokens(self) -> int:
        """Tokens of all sequences."""
        return self.sequences * self.n


class Watched(Sizes):
    """Sizes that keep the names of those that are read: a race that is made of them shows what it heeds."""

    read: set[str]
    _own: frozenset[str]  # names of what a race put in place of what was given

    @classmethod
    def of(cls, sizes: Sizes) -> Self:
        """Return the same sizes, none of them read."""
        return cls(*(getattr(sizes, each.name) for each in fields(Sizes)))._watch(set(), frozenset())

    def but(self, **others: Any) -> Self:
        """Return the sizes with others in place of some; those that stay are watched."""
        values = {each.name: object.__getattribute__(self, each.name) for each in fields(Sizes)}
        return type(self)(**values | others)._watch(self.read, self._own | set(others))

    def _watch(self, read: set[str], own: frozenset[str]) -> Self:
        object.__setattr__(self, "_own", own)
        object.__setattr__(self, "read", read)
        return self

    def __getattribute__(self, name: str) -> Any:
        if name in _NAMES and name not in self._own:
            self.read.add(name)
        return super().__getattribute__(name)


_NAMES = frozenset(each.name for each in fields(Sizes))
