"""
Does "auto" choose well?
========================

For each data set, errors of six estimators of attention on rows that "auto" did not see, over that of uniform
attention, every key alike. The one that "auto" chose from the other half of the rows has a ring. Left of the line a map
is worth having. Values are the data's own, and "auto" did not see them either.

Run as a script it prints the table of the guide, of the kernel's errors too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import exp, log
from typing import Any, NamedTuple

import numpy as np
from matplotlib import pyplot as plt

from kernattn._arrays.namespaces import Float64
from kernattn._runtime.extras import require
from kernattn.attention import linear_attention, softmax_attention
from kernattn.features import ESTIMATORS, FeatureMap, random_features, recommend
from kernattn.kernels import Gaussian, Kernel, Softmax
from kernattn.metrics import attention_mse
from kernattn.studies._presets.attention.tokens import shipped_tokens
from kernattn.studies._seeds import stream

SIX = ("positive", "hyperbolic", "optimal_positive", "favor_sharp", "trigonometric", "phase")
ROWS = 1024  # of a data set at most; one half is chosen by, the other one judged on
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


DATA: dict[str, Callable[[np.random.Generator], Three]] = {
    **{name: _real(name) for name in ("wine", "iris", "diabetes", "breast_cancer", "digits")},
    **{name: _tokens(name) for name in ("china", "flower")},
    "clusters": _clusters,
    "anisotropic": _anisotropic,
    "opposed": _opposed,
    "heavy tails": _heavy,
    "small norms": _of_norms(0.3),
    "large norms": _of_norms(2.0),
}


def measure_regrets(
    names: Sequence[str] = tuple(DATA),
    num_features: Sequence[int] = (64, 256),
    objectives: Sequence[str] = ("attention", "kernel"),
    draws: int = 32,
    seed: int = 0,
) -> list[dict[str, Any]]:
    r"""Measure the regret of "auto", :math:`e(auto) / \min_f e(f)`, squared errors of six estimators on held-out rows.

    Half of a data set's rows are given to ``random_features(..., estimator="auto", data=(q, k))``; all estimators, with
    orthogonal frequencies and shaped by the same rows, are judged on the other half. Values are the data's own and are
    not given to "auto".

    - "attention": the mean squared error of outputs of the softmax kernel's linear attention, over that of uniform
      attention; the geometric mean over draws, which are common to all maps.
    - "kernel": the squared error of the Gaussian kernel whose lengthscale is half the median distance of a query and a
      key, over the kernel's own square; the mean over draws.

    Return a record for each data set, number of features and objective: dataset, m, objective, auto and best (names),
    regret, errors (by name), and of attention hopeless, as `kernattn.features.recommend` says.
    """
    return [
        _regret(name, m, objective, draws, seed) for name in names for objective in objectives for m in num_features
    ]


def _regret(name: str, m: int, objective: str, draws: int, seed: int) -> dict[str, Any]:
    q, k, v = DATA[name](np.random.default_rng(stream(seed, f"regret/{name}")))
    half = len(q) // 2
    seen, held = Part(q[:half], k[:half], v[:half]), Part(q[half:], k[half:], v[half:])
    data = seen.q, seen.k
    kernel: Kernel = Softmax() if objective == "attention" else Gaussian(_median_distance(*data) / 2)
    source = stream(seed, f"regret/{name}", 0)
    maps = {each: random_features(kernel, q.shape[1], m, each, data=data, rng=source) for each in (*SIX, "auto")}
    (auto,) = (each for each in SIX if ESTIMATORS[each].cls is type(maps["auto"]))
    judge = _attention_errors if objective == "attention" else _kernel_errors
    errors = {each: judge(maps[each], held, draws, seed) for each in SIX}
    best = min(SIX, key=errors.__getitem__)
    record = {
        "dataset": name,
        "m": m,
        "objective": objective,
        "auto": auto,
        "best": best,
        "regret": errors[auto] / errors[best],
        "errors": errors,
    }
    if objective == "attention":
        record["hopeless"] = recommend(data, kernel, m, ["orthogonal"], rng=source).hopeless
    return record


def _median_distance(x: Float64, y: Float64) -> float:
    squares = np.sum(x**2, axis=1)[:, None] + np.sum(y**2, axis=1) - 2 * x @ y.T
    return float(np.sqrt(np.median(squares)))


def _attention_errors(phi: FeatureMap, held: Part, draws: int, seed: int) -> float:
    exact = softmax_attention(*held)
    uniform = float(attention_mse(held.v.mean(axis=0, keepdims=True) + 0 * exact, exact))
    outs = (linear_attention(*held, each) for each in _redraws(phi, draws, seed))
    return geometric_mean([float(attention_mse(out, exact)) / uniform for out in outs])


def _kernel_errors(phi: FeatureMap, held: Part, draws: int, seed: int) -> float:
    exact = phi.kernel(held.q, held.k)  # type: ignore[attr-defined]
    estimates = (each.query(held.q) @ each.key(held.k).T for each in _redraws(phi, draws, seed))
    return float(np.mean([np.sum((estimate - exact) ** 2) for estimate in estimates]) / np.sum(exact**2))


def _redraws(phi: FeatureMap, draws: int, seed: int) -> list[FeatureMap]:
    return [phi.redraw(np.random.default_rng(stream(seed, "regret/draws", number))) for number in range(draws)]


def geometric_mean(numbers: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers."""
    return exp(sum(map(log, numbers)) / len(numbers))


def regret_table(records: Sequence[dict[str, Any]]) -> str:
    """Write records of regret as a table of Markdown, and for each objective the geometric mean and the worst."""
    lines = [
        "| objective | data | M | auto | best | regret | auto's error | hopeless |",
        "|---|---|---:|---|---|---:|---:|---|",
    ]
    for record in records:
        hopeless = ("yes" if record["hopeless"] else "no") if "hopeless" in record else ""
        lines.append(
            f"| {record['objective']} | {record['dataset']} | {record['m']} | {record['auto']} | {record['best']} | "
            f"{record['regret']:.3g} | {record['errors'][record['auto']]:.3g} | {hopeless} |"
        )
    for objective in dict.fromkeys(record["objective"] for record in records):
        found = [record["regret"] for record in records if record["objective"] == objective]
        lines.append(
            f"\n{objective}: regret {geometric_mean(found):.3f} in the geometric mean over {len(found)} cases, "
            f"{max(found):.3g} at worst."
        )
    return "\n".join(lines)


def run(quick: bool = False) -> None:
    if quick:
        records = measure_regrets(["clusters", "small norms"], [64], ["attention"], draws=4)
    else:
        records = measure_regrets(num_features=[64], objectives=["attention"])
    figure, axis = plt.subplots(figsize=(7, 0.35 * len(records) + 1.6), layout="constrained")
    names = list(records[0]["errors"])
    for place, record in enumerate(records):
        for marker, name in zip("o^sDx+", names, strict=True):
            label = name if place == 0 else None
            axis.semilogx(record["errors"][name], place, marker, color="0.2", markersize=5, label=label)
        axis.semilogx(record["errors"][record["auto"]], place, "o", color="C1", markersize=12, fillstyle="none")
    axis.axvline(1, color="C0", linewidth=0.8)
    axis.set(xlabel="squared error of attention over that of uniform attention", xlim=(None, 1e2))
    axis.set_yticks(range(len(records)), [record["dataset"] for record in records])
    figure.legend(frameon=False, loc="outside lower center", ncols=3)


if __name__ == "__main__":
    print(regret_table(measure_regrets()))
    run()
    plt.show()
