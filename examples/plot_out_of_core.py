"""
Regression on blocks of rows from a file
========================================

Moments of blocks of rows are added as they come from a file, and the rows are forgotten: what is kept has the same size
after the first block and after the last. After each block the fit of all rows so far, its ridge chosen without a second
look at them, is judged on new rows. Its error falls to that of the features alone.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

import kernattn as ka

DIM, NOISE = 4, 0.3


def function(x: np.ndarray) -> np.ndarray:
    return np.sin(2 * x[:, 0]) * x[:, 1] + np.cos(x[:, 2] + x[:, 3])


def run(quick: bool = False) -> None:
    n, sizes = (2000, (32,)) if quick else (60_000, (64, 256, 512))
    rng = np.random.default_rng(0)
    x, new = rng.standard_normal((n, DIM)), rng.standard_normal((2000, DIM))
    y = function(x) + NOISE * rng.standard_normal(n)
    ends = np.unique(np.geomspace(500, n, 4 if quick else 14).astype(int))
    _, axis = plt.subplots(figsize=(7, 4), layout="constrained")
    with tempfile.TemporaryDirectory() as folder:
        np.save(Path(folder) / "rows.npy", np.column_stack([x, y]))
        for features in sizes:
            rows = np.load(Path(folder) / "rows.npy", mmap_mode="r")
            phi = ka.random_features(ka.kernels.Gaussian(1.5), DIM, features, rng=0)
            total, errors = ka.solvers.initial_moments(phi, targets=0), []
            for start, end in zip((0, *ends[:-1]), ends, strict=True):
                blocks = ((rows[i : min(i + 4096, end), :DIM], rows[i : min(i + 4096, end), DIM])
                          for i in range(start, end, 4096))  # fmt: skip
                total = total + ka.solvers.accumulate(blocks, phi)
                errors.append(np.sqrt(np.mean((ka.solvers.ridge(total).predict(new) - function(new)) ** 2)))
            del rows
            kept = sum(each.nbytes for each in (total.s, total.gram, total.cross, total.y_sum, total.y_gram))
            axis.loglog(ends, errors, "o-", markersize=3, label=f"{features} features, {kept / 1e6:.2g} MB kept")
    axis.yaxis.set_minor_formatter("{x:.1f}")
    axis.set(xlabel="rows seen", ylabel="root mean squared error on new rows", title="blocks from a file, added")
    axis.legend(frameon=False)


if __name__ == "__main__":
    run()
    plt.show()
