"""
A path of ridge regression from one eigendecomposition
======================================================

The whole path of ridge regression on random features, from one pass over the rows: what generalised cross-validation
expects of new rows, what new rows show, and the evidence. Prices of diamonds where plotnine is installed, else the
progression of diabetes. Five diamonds can carry half of the squared error, so the median of absolute errors stands
beside it: both are drawn over their least.
"""

from __future__ import annotations

import numpy as np
from matplotlib import pyplot as plt

import kernattn as ka


def rows(train: int) -> tuple[str, ka.studies.Split]:
    """Return a name and real rows to learn from and to judge on."""
    try:
        return "diamonds", ka.studies.diamonds().split(train, 10 * train, rng=1)
    except ka.errors.MissingExtra:
        from sklearn.datasets import load_diabetes

        found = load_diabetes()
        measured = np.ones(found.data.shape[1], dtype=bool)
        table = ka.studies.Table(found.data, found.target, tuple(found.feature_names), measured, "progression", {})
        return "diabetes", table.split(300, rng=0)


def run(quick: bool = False) -> None:
    name, part = rows(400 if quick else 1000)
    dim = part.x.shape[1]
    phi = ka.random_features(ka.kernels.Gaussian(dim**0.5), dim, 64 if quick else 512, rng=0)
    fit = ka.solvers.ridge(ka.solvers.moments(part.x, phi, y=part.y))
    path = fit.path(np.geomspace(1e-5, 1e3, 9 if quick else 60))
    errors = np.stack([fit.at(ridge).predict(part.new_x) for ridge in path.penalty]) - part.new_y
    costs = {
        "cross-validation": np.sqrt(path.gcv),
        "new rows": np.sqrt(np.mean(errors**2, axis=1)),
        "new rows, median": np.median(np.abs(errors), axis=1),
    }
    figure, axes = plt.subplots(2, 2, figsize=(9, 5.4), sharex="col", layout="constrained")
    for column, (at, label) in enumerate(((path.penalty, "ridge"), (path.effective_dimension, "effective dimension"))):
        top, bottom = axes[:, column]
        for cost, values in costs.items():
            (line,) = top.plot(at, values / values.min(), label=cost)
            top.plot(at[np.argmin(values)], 1, "o", color=line.get_color())
        bottom.plot(at, path.log_evidence / len(part.y), color="C3")
        bottom.plot(at[np.argmax(path.log_evidence)], np.max(path.log_evidence) / len(part.y), "o", color="C3")
        top.set(xscale="log", ylim=(0.97, 1.8))
        bottom.set(xscale="log", xlabel=label)
    axes[0, 0].set_ylabel("error over its least")
    axes[1, 0].set_ylabel("log evidence per row")
    axes[0, 0].legend(frameon=False)
    figure.suptitle(f"{name}: {len(part.y)} rows, {phi.num_features} features; dots are the best")


if __name__ == "__main__":
    run()
    plt.show()
