"""
Error of the estimator that "auto" chooses, beside all others
=============================================================

For each data set, errors of all estimators of attention on rows that "auto" did not see, over that of uniform
attention, every key alike. The one that "auto" chose from the other half of the rows has a ring. Left of the line a map
is worth having. Values are the data's own, and "auto" did not see them either.

Run as a script it prints the table of the guide: attention over real rows at four sizes and in trained heads, made
data, and errors of the Gaussian kernel. Heads are those of the model that draws digits in ``image_generation``, and of
one that learns characters of Python's own documentation first, in half a minute of torch. With ``--learned`` it prints
instead what maps that are fitted to the rows reach beside the best random one, and the regret of "auto" against both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from math import exp, log
from sys import argv
from time import process_time
from typing import Any
from warnings import catch_warnings, simplefilter

import numpy as np
from matplotlib import pyplot as plt
from regret_data import DATA, MADE, REAL, Part

from kernattn._arrays.namespaces import Float64
from kernattn.attention import linear_attention, softmax_attention
from kernattn.features import FeatureMap, Fitted, estimators, fit, random_features, recommend
from kernattn.kernels import Gaussian, Kernel, Softmax
from kernattn.metrics import attention_mse
from kernattn.studies._seeds import stream

PRECISE = 0.1  # two standard errors of the logarithm of a regret, below which draws suffice


def measure_regrets(
    names: Sequence[str] = (*REAL, *MADE),
    num_features: Sequence[int] = (64, 256),
    objectives: Sequence[str] = ("attention", "kernel"),
    draws: int = 32,
    seed: int = 0,
) -> list[dict[str, Any]]:
    r"""Measure the regret of "auto", :math:`e(auto) / \min_f e(f)`, squared errors of all estimators on held-out rows.

    Half of a data set's rows are given to `kernattn.features.recommend` as the pair (q, k), whose first row "auto"
    takes; all estimators, with orthogonal frequencies and shaped by the same rows, are judged on the other half, for
    the kernel but that of maps of queries and of keys. Values are the data's own and are not given to "auto".

    - "attention": the mean squared error of outputs of the softmax kernel's linear attention, over that of uniform
      attention; the geometric mean over draws, which are common to all maps, and up to eight times as many where the
      regret would be noise.
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
    table = recommend(data, kernel, m, ["orthogonal"], rng=source)
    names = [each for each in estimators(kernel) if objective == "attention" or each != "favor_sharp_asymmetric"]
    maps = {each: random_features(kernel, q.shape[1], m, each, data=data, rng=source) for each in names}
    auto = table.best.estimator
    if objective == "attention":
        errors = _attention_errors(maps, auto, held, draws, seed)
    else:
        errors = {each: _kernel_errors(phi, held, draws, seed) for each, phi in maps.items()}
    best = min(names, key=errors.__getitem__)
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
        record["hopeless"] = table.hopeless
    return record


def measure_learned(
    names: Sequence[str] = (*REAL, *MADE),
    num_features: Sequence[int] = (64, 256),
    seeds: Sequence[int] = (0, 1, 2),
    draws: int = 16,
) -> list[dict[str, Any]]:
    r"""Measure :math:`e(fit) / \min_f e(f)`, squared errors of attention on held-out rows, and of "auto" likewise.

    The fit is `kernattn.features.fit` on half of a data set's rows, without values: where it does not help it is the
    random map that this returns. The others are the geometric means over draws of all estimators, shaped by the same
    rows. With learnt maps among all, the regret of "auto" is :math:`e(auto) / \min(e(fit), \min_f e(f))`.

    Return a record for each data set, number of features and seed: dataset, m, seed, best (a name), best_error, error,
    ratio, kept (whether it is a fit), seconds (of CPU time), auto and regret.
    """
    found = []
    for name, m, seed in product(names, num_features, seeds):
        q, k, v = DATA[name](np.random.default_rng(stream(seed, f"regret/{name}")))
        half = len(q) // 2
        data, held = (q[:half], k[:half]), Part(q[half:], k[half:], v[half:])
        names_ = estimators(Softmax())
        maps = {each: random_features(Softmax(), q.shape[1], m, each, data=data, rng=0) for each in names_}
        errors = {
            each: exp(np.mean([log(_over_uniform(phi, held)) for phi in _redraws(drawn, 0, draws, seed)]))
            for each, drawn in maps.items()
        }
        began = process_time()
        with catch_warnings():
            simplefilter("ignore", UserWarning)  # of few rows, and of fits that do not help
            phi = fit(Softmax(), data, m, rng=seed)
        seconds = process_time() - began
        best, mine = min(errors, key=errors.__getitem__), _over_uniform(phi, held)
        auto = recommend(data, Softmax(), m, ["orthogonal"], rng=seed).best.estimator
        found.append(
            {
                "dataset": name,
                "m": m,
                "seed": seed,
                "best": best,
                "best_error": errors[best],
                "error": mine,
                "ratio": mine / errors[best],
                "kept": isinstance(phi, Fitted),
                "seconds": seconds,
                "auto": auto,
                "regret": errors[auto] / min(mine, errors[best]),
            }
        )
    return found


def learned_table(records: Sequence[dict[str, Any]]) -> str:
    """Write records of fits as a table of Markdown: geometric means over seeds, and of all with the worst."""
    lines = [
        "| data | M | best random | its error | fit | ratio | worst | kept | CPU s | regret of auto |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for record in records:
        groups.setdefault((record["dataset"], record["m"]), []).append(record)
    for (name, m), here in groups.items():
        best = Counter(record["best"] for record in here).most_common(1)[0][0]
        mean = {of: geometric_mean([r[of] for r in here]) for of in ("best_error", "error", "ratio", "regret")}
        lines.append(
            f"| {name} | {m} | {best} | {mean['best_error']:.3g} | {mean['error']:.3g} | {mean['ratio']:.3f} | "
            f"{max(r['ratio'] for r in here):.3f} | {sum(r['kept'] for r in here)} of {len(here)} | "
            f"{max(r['seconds'] for r in here):.1f} | {mean['regret']:.2f} |"
        )
    ratios, regrets = [r["ratio"] for r in records], [r["regret"] for r in records]
    lines.append(
        f"\nfit over the best random map: {geometric_mean(ratios):.3f} in the geometric mean over {len(ratios)} cases, "
        f"{max(ratios):.3f} at worst; regret of auto against all, fits included: {geometric_mean(regrets):.2f}."
    )
    return "\n".join(lines)


def _over_uniform(phi: FeatureMap, held: Part) -> float:
    """Return the squared error of attention's outputs over that of uniform attention."""
    exact = softmax_attention(*held)
    uniform = float(attention_mse(held.v.mean(axis=0, keepdims=True) + 0 * exact, exact))
    return float(attention_mse(linear_attention(*held, phi), exact)) / uniform


def _median_distance(x: Float64, y: Float64) -> float:
    squares = np.sum(x**2, axis=1)[:, None] + np.sum(y**2, axis=1) - 2 * x @ y.T
    return float(np.sqrt(np.median(squares)))


def _attention_errors(maps: dict[str, FeatureMap], auto: str, held: Part, draws: int, seed: int) -> dict[str, float]:
    """Return the errors; maps that are near the one of "auto" are redrawn up to eight times as often."""
    exact = softmax_attention(*held)
    uniform = float(attention_mse(held.v.mean(axis=0, keepdims=True) + 0 * exact, exact))
    logs: dict[str, list[float]] = {name: [] for name in maps}
    near = list(maps)
    for number in (draws, 2 * draws, 4 * draws, 8 * draws):
        for name in near:
            outs = (linear_attention(*held, each) for each in _redraws(maps[name], len(logs[name]), number, seed))
            logs[name] += [log(float(attention_mse(out, exact)) / uniform) for out in outs]
        differences = {name: np.subtract(logs[name], logs[auto]) for name in near if name != auto}
        errors = {name: 2 * float(np.std(each)) / number**0.5 for name, each in differences.items()}
        near = [name for name, each in differences.items() if float(np.mean(each)) < errors[name] > PRECISE]
        if not near:
            break
        near.append(auto)
    return {name: exp(sum(each) / len(each)) for name, each in logs.items()}


def _kernel_errors(phi: FeatureMap, held: Part, draws: int, seed: int) -> float:
    exact = phi.kernel(held.q, held.k)  # type: ignore[attr-defined]
    estimates = (each.query(held.q) @ each.key(held.k).T for each in _redraws(phi, 0, draws, seed))
    return float(np.mean([np.sum((estimate - exact) ** 2) for estimate in estimates]) / np.sum(exact**2))


def _redraws(phi: FeatureMap, first: int, last: int, seed: int) -> list[FeatureMap]:
    streams = (stream(seed, "regret/draws", number) for number in range(first, last))
    return [phi.redraw(np.random.default_rng(each)) for each in streams]


def geometric_mean(numbers: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers."""
    return exp(sum(map(log, numbers)) / len(numbers))


def regret_table(records: Sequence[dict[str, Any]]) -> str:
    """Write records of regret as a table of Markdown, and for each objective the geometric mean and the worst.

    A line is of the sizes of a data set, or of the heads of a layer.
    """
    lines = [
        "| objective | data | cases | M | auto | regret | worst | auto's error | hopeless |",
        "|---|---|---:|---:|---|---:|---:|---:|---:|",
    ]
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in records:
        data = record["dataset"].partition(" x ")[0].partition(", head")[0]
        groups.setdefault((record["objective"], data, record["m"]), []).append(record)
    for (objective, data, m), here in groups.items():
        chosen = Counter(record["auto"] for record in here)
        names = ", ".join(f"{name} {count}" if len(chosen) > 1 else name for name, count in chosen.most_common())
        regrets = [record["regret"] for record in here]
        error = geometric_mean([record["errors"][record["auto"]] for record in here])
        hopeless = sum(record["hopeless"] for record in here) if objective == "attention" else ""
        lines.append(
            f"| {objective} | {data} | {len(here)} | {m} | {names} | {geometric_mean(regrets):.3f} | "
            f"{max(regrets):.3f} | {error:.3g} | {hopeless} |"
        )
    for objective, made in dict.fromkeys((record["objective"], record["dataset"] in MADE) for record in records):
        here = [r for r in records if r["objective"] == objective and (r["dataset"] in MADE) == made]
        regrets, what = [r["regret"] for r in here], "made data" if made else "real rows and trained heads"
        false = sum(bool(r.get("hopeless")) and min(r["errors"].values()) < 1 for r in here)
        lines.append(
            f"\n{objective}, {what}: regret {geometric_mean(regrets):.3f} in the geometric mean over {len(here)} "
            f"cases, {max(regrets):.3f} at worst; hopeless was said where a map beats uniform attention: {false}."
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
        for marker, name in zip("o^sDPx+", names, strict=True):
            label = name if place == 0 else None
            axis.semilogx(record["errors"][name], place, marker, color="0.2", markersize=5, label=label)
        axis.semilogx(record["errors"][record["auto"]], place, "o", color="C1", markersize=12, fillstyle="none")
    axis.axvline(1, color="C0", linewidth=0.8)
    axis.set(xlabel="squared error of attention over that of uniform attention", xlim=(None, 1e2))
    axis.set_yticks(range(len(records)), [record["dataset"] for record in records])
    figure.legend(frameon=False, loc="outside lower center", ncols=3)


if __name__ == "__main__" and "--learned" in argv:
    print(learned_table(measure_learned()))
elif __name__ == "__main__":
    names = tuple(DATA) if "__file__" in globals() else (*REAL, *MADE)  # the gallery leaves out the trained heads
    every = measure_regrets(names, objectives=["attention"], draws=16) + measure_regrets(objectives=["kernel"])
    print(regret_table(every))
    run()
    plt.show()
