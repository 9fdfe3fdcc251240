"""Rows for ``plot_regret.py``: real ones, made ones, and those that heads of trained models see."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from itertools import product
from pathlib import Path
from pydoc_data.topics import topics  # half a million characters of English
from typing import Any, NamedTuple

import numpy as np

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.extras import require
from kernattn.attention import softmax_attention
from kernattn.studies._tokens import shipped_tokens
from kernattn.transformer import Config, forward, initial_params, load_params

ROWS = 1024  # of a data set at most
DIM, VALUES = 16, 8
Three = tuple[Float64, Float64, Float64]


class Part(NamedTuple):
    """Queries, keys and values."""

    q: Float64
    k: Float64
    v: Float64


def _real(name: str) -> Callable[[np.random.Generator], Three]:
    """Return rows of a data set in scikit-learn, each column standardised, attend to themselves; values: the target."""

    def load(rng: np.random.Generator) -> Three:
        datasets: Any = require("sklearn.datasets", "scikit-learn", "real data")
        x, y = getattr(datasets, f"load_{name}")(return_X_y=True)
        spread = x.std(axis=0)
        x = (x - x.mean(axis=0)) / np.where(spread == 0, 1.0, spread)
        v = (y - y.mean())[:, None] / y.std() if name == "diabetes" else np.eye(int(y.max()) + 1)[y.astype(int)]
        at = rng.permutation(len(x))[:ROWS]
        return x[at], x[at], v[at]

    return load


def _tokens(name: str) -> Callable[[np.random.Generator], Three]:
    """Return patches of a photograph, as the attention study has them."""

    def load(rng: np.random.Generator) -> Three:
        tokens = shipped_tokens(name, ROWS, ROWS, int(rng.integers(2**31)))
        at = rng.permutation(ROWS)  # neighbours in the photograph are neighbours among the tokens
        return tokens.q[at], tokens.k[at], tokens.v[at]

    return load


def _normal(rng: np.random.Generator, dim: int = DIM) -> Three:
    return (*rng.standard_normal((2, ROWS, dim)), rng.standard_normal((ROWS, VALUES)))


def _of_norms(size: float) -> Callable[[np.random.Generator], Three]:
    def draw(rng: np.random.Generator) -> Three:
        q, k, v = _normal(rng)
        return size * q, size * k, v

    return draw


def _clusters(rng: np.random.Generator) -> Three:
    """Return eight clusters of rows that attend to themselves; values: which one."""
    which = rng.integers(8, size=ROWS)
    x = 1.5 * rng.standard_normal((8, DIM))[which] + 0.2 * rng.standard_normal((ROWS, DIM))
    return x, x, np.eye(8)[which]


def _anisotropic(rng: np.random.Generator) -> Three:
    """Return queries and keys whose variances lie along different axes; keys share a mean, and queries do."""
    q, k, v = _normal(rng, 32)
    sizes = np.geomspace(2.0, 0.1, 32)
    return q * sizes + sizes, k * sizes[::-1] + 0.5 * rng.standard_normal(32), v


def _heavy(rng: np.random.Generator) -> Three:
    q, k = 0.7 * rng.standard_t(3, (2, ROWS, DIM))
    return q, k, rng.standard_normal((ROWS, VALUES))


def _opposed(rng: np.random.Generator) -> Three:
    """Return queries about a mean, keys about its opposite."""
    q, k, v = _normal(rng, 32)
    mean = 1.2 * np.eye(32)[0]
    return (0.3 * q + mean) * 32**0.25, (0.3 * k - mean) * 32**0.25, v


def _sized(name: str, size: float) -> Callable[[np.random.Generator], Three]:
    """Return real rows times a number: sharper attention, or smoother."""

    def load(rng: np.random.Generator) -> Three:
        q, k, v = DATA[name](rng)
        return size * q, size * k, v

    return load


LAYERS, HEADS, LENGTH = 3, 4, 256


@cache
def _image_heads() -> list[Three]:
    """Return queries, keys and values of each layer of the model that draws digits, on 16 images (16, 4, 64, 16)."""
    trained = Path(__file__).parent / "image_generation" / "trained"
    params, config = load_params(trained / "digits-softmax-0.npz", "float32")
    datasets: Any = require("sklearn.datasets", "scikit-learn", "real data")
    tokens = datasets.load_digits().data[:16, :-1].astype(np.int64)
    return _watched(params, config, np.pad(tokens, ((0, 0), (1, 0))))


@cache
def _text_heads() -> list[Three]:
    """Return those of a model of characters on 4 passages (4, 4, 256, 16), which is trained first."""
    torch: Any = import_module("torch")
    text = "\n".join(topics[name] for name in sorted(topics))
    tokens = np.unique(list(text), return_inverse=True)[1].astype(np.int64)
    vocab, steps, rng = int(tokens.max()) + 1, 300, np.random.default_rng(0)
    config = Config(dim=64, layers=LAYERS, heads=HEADS, hidden=256, vocab=vocab, positions="rotary")
    params = {name: torch.tensor(value, requires_grad=True) for name, value in initial_params(config, rng=0).items()}
    adam = torch.optim.AdamW(params.values(), 4e-3, (0.9, 0.98), weight_decay=0.1)

    def attend(q: Any, k: Any, v: Any, causal: bool, key_mask: None) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    for step in range(1, steps + 1):
        adam.param_groups[0]["lr"] = 4e-3 * min(step / steps / 0.1, 0.5 + 0.5 * np.cos(np.pi * step / steps))
        start = rng.integers(len(tokens) - LENGTH - 1, size=(8, 1))
        seen = torch.tensor(tokens[start + np.arange(LENGTH + 1)])
        logits = forward(params, config, seen[:, :-1], attention=attend)
        adam.zero_grad()
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), seen[:, 1:].flatten()).backward()
        torch.nn.utils.clip_grad_norm_(params.values(), 1.0)
        adam.step()
    passages = tokens[np.arange(4)[:, None] * 10**5 + np.arange(LENGTH)]
    return _watched({name: value.detach().numpy() for name, value in params.items()}, config, passages)


def _watched(params: Any, config: Config, tokens: Any) -> list[Three]:
    """Return the queries, keys and values (sequences, heads, n, d) that each layer's heads see."""
    found: list[Three] = []

    def attend(q: Float64, k: Float64, v: Float64, causal: bool, key_mask: None) -> Float64:
        found.append((q, k, v))
        return softmax_attention(q, k, v, causal=causal)

    forward(params, config, tokens, attention=attend)
    return found


def _head(heads: Callable[[], list[Three]], layer: int, head: int, rng: np.random.Generator) -> Three:
    """Return one head's tokens, those of all sequences as one; halves of them are other sequences."""
    q, k, v = (np.asarray(part[:, head], np.float64) for part in heads()[layer])
    return tuple(part.reshape(-1, part.shape[-1]) for part in (q, k, v))  # type: ignore[return-value]


REAL = ("wine", "iris", "diabetes", "breast_cancer", "digits", "china", "flower")
DATA: dict[str, Callable[[np.random.Generator], Three]] = {
    **{name: _real(name) for name in REAL[:5]},
    **{name: _tokens(name) for name in REAL[5:]},
    "clusters": _clusters,
    "anisotropic": _anisotropic,
    "opposed": _opposed,
    "heavy tails": _heavy,
    "small norms": _of_norms(0.3),
    "large norms": _of_norms(2.0),
}
MADE = tuple(name for name in DATA if name not in REAL)
SIZED = {f"{name} x {size:g}": _sized(name, size) for name in REAL for size in (0.5, 1.5, 2.0)}
TRAINED = {
    f"{name}, layer {layer + 1}, head {head + 1}": partial(_head, heads, layer, head)
    for name, heads in (("images", _image_heads), ("text", _text_heads))
    for layer, head in product(range(LAYERS), range(HEADS))
}
DATA |= SIZED | TRAINED
