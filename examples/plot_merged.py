"""
Regression on rows of several workers, by the sum of their moments
==================================================================

Each worker has rows that the others do not see, here of one half of an interval or the other, and sends its moments. A
fit of its own knows its own half; the sum of the moments gives the fit of all rows, with no row sent. Right, how far
sums of many workers are from those of one, over the largest of them, in units of rounding.
"""

from __future__ import annotations

import numpy as np
from matplotlib import pyplot as plt

import kernattn as ka


def run(quick: bool = False) -> None:
    n, workers = (2000, (2, 8)) if quick else (65_536, (2, 8, 32, 128, 512))
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-3, 3, n))[:, None]
    y = np.sin(2 * x[:, 0]) + 0.3 * rng.standard_normal(n)
    phi = ka.random_features(ka.kernels.Gaussian(0.8), 1, 64, rng=0)
    grid = np.linspace(-3, 3, 200)[:, None]
    _, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")

    halves = [ka.solvers.moments(x[rows], phi, y=y[rows]) for rows in (slice(n // 2), slice(n // 2, n))]
    left.plot(grid[:, 0], np.sin(2 * grid[:, 0]), color="0.6", linewidth=4, label="truth")
    for name, m in zip(("left half", "right half", "merged"), (*halves, halves[0] + halves[1]), strict=True):
        style = "-" if name == "merged" else "--"
        left.plot(grid[:, 0], ka.solvers.ridge(m).predict(grid), style, label=name, linewidth=1.2)
    left.set(xlabel="x", ylim=(-2.5, 2.5), title="two workers")
    left.legend(frameon=False, ncols=2)

    whole, differences = ka.solvers.moments(x, phi, y=y), []
    for count in workers:
        parts = [ka.solvers.moments(a, phi, y=b) for a, b in zip(np.split(x, count), np.split(y, count), strict=True)]
        gram = sum(parts[1:], parts[0]).gram
        differences.append(np.max(np.abs(gram - whole.gram)) / np.max(whole.gram) / np.finfo(float).eps)
    right.semilogx(workers, differences, "o-", base=2)
    right.set(xlabel="workers", ylabel="largest difference, units of rounding", title="sums of many against one")
    right.set_ylim(bottom=0)


if __name__ == "__main__":
    run()
    plt.show()
