"""Patterns of exact attention: which keys each query sees. They make plans, and compute nothing.

Each function returns a `Pattern`, a frozen value, and raises a ParameterError if a number is not allowed.
"""

from kernattn._plans.parts import Part
from kernattn._plans.plan import Plan
from kernattn.attention.patterns._base import Pattern
from kernattn.attention.patterns._blocks import bigbird, block_permutation, image_1d
from kernattn.attention.patterns._grids import axial, image_2d, neighborhood
from kernattn.attention.patterns._hashing import lsh
from kernattn.attention.patterns._longformer import longformer
from kernattn.attention.patterns._masks import from_intervals, from_mask
from kernattn.attention.patterns._per_head import per_head
from kernattn.attention.patterns._prefixes import documents, prefix, sinks
from kernattn.attention.patterns._sparse import fixed, strided
from kernattn.attention.patterns._windows import local

__all__ = [
    "Part",
    "Pattern",
    "Plan",
    "axial",
    "bigbird",
    "block_permutation",
    "documents",
    "fixed",
    "from_intervals",
    "from_mask",
    "image_1d",
    "image_2d",
    "local",
    "longformer",
    "lsh",
    "neighborhood",
    "per_head",
    "prefix",
    "sinks",
    "strided",
]


def __dir__() -> list[str]:
    return __all__
