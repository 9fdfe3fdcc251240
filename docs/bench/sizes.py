"""Sizes of what is raced."""

from __future__ import annotations

from dataclasses import dataclass

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
