"""Sequences of tokens whose order means something: photographs, digits, text, or the user's own."""

from pathlib import Path

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.extras import require
from kernattn.errors import ShapeError
from kernattn.studies._seeds import stream
from kernattn.studies._tokens import (
    DIM,
    Tokens,
    own_tokens,
    shipped_tokens,
    unseen_tokens,
)

SOURCES = ("photographs", "digits", "text")
WINDOW = 8  # characters in a token of text
MOST = 4096  # tokens: the study looks at whole matrices of weights


PHOTOGRAPH = "china"


def tokens_of(source: str, length: int, seed: int) -> Tokens:
    """Return so many tokens of a source, q = k of norm d^(1/2), in their order."""
    if source == "text":
        return _text(length, seed)
    return shipped_tokens({"photographs": PHOTOGRAPH}.get(source, source), length, length, seed)


def read_unseen(source: str, length: int, seed: int) -> Tokens:
    """Return tokens in their order that are none of `tokens_of`, for maps that are fitted; as many if there are."""
    if source == "text":
        return _text(length, seed, first=length + WINDOW)
    return unseen_tokens({"photographs": PHOTOGRAPH}.get(source, source), length, seed)


def read(data: str, seed: int) -> Tokens:
    """Return the tokens of a file, as many queries as keys."""
    tokens = own_tokens(Path(data), MOST, seed)
    if not len(tokens.q) == len(tokens.k) <= MOST:
        raise ShapeError(f"{data}: this study takes as many queries as keys, up to {MOST}; got {len(tokens.k)} keys")
    return tokens


def _text(length: int, seed: int, first: int = 0) -> Tokens:
    """Return windows of characters, by a normal vector for each character at each place; values: the next one's.

    Characters that the first tokens do not have are drawn after those that they have.
    """
    text = _characters()
    rng = np.random.default_rng(stream(seed, "tokens/text"))
    known = np.unique(text[: length + WINDOW])
    letters = np.concatenate([known, np.setdiff1d(text, known)])
    sizes = len(known), len(letters) - len(known)
    table = np.concatenate([rng.standard_normal((WINDOW + 1, size, DIM)) for size in sizes], axis=1)
    order = np.argsort(letters)
    codes = order[np.searchsorted(letters, text[first : first + length + WINDOW], sorter=order)]
    at = np.arange(len(codes) - WINDOW)
    x: Float64 = np.sum([table[t, codes[at + t]] for t in range(WINDOW)], axis=0)
    x *= DIM**0.5 / np.linalg.norm(x, axis=1, keepdims=True)
    described = f"windows of {WINDOW} characters of descriptions of data sets; values: the next character"
    return Tokens("text", described, x, x, table[WINDOW, codes[at + WINDOW]])


def _characters() -> Float64:
    """Return the characters of the descriptions that scikit-learn ships with its data."""
    datasets = require("sklearn.datasets", "scikit-learn", "text")
    names = ("diabetes", "digits", "iris", "wine", "breast_cancer", "linnerud")
    text = " ".join(" ".join(getattr(datasets, f"load_{name}")().DESCR.split()) for name in names)
    return np.frombuffer(text.encode("ascii", "replace"), np.uint8).astype(np.float64)
