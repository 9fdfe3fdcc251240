"""
Variance of a Gaussian process far from the data
================================================

A Gaussian process on features, mean and two standard deviations of the function. A Nystrom map's features vanish away
from its landmarks, and its variance comes back to the prior's, which dots show. Random features vanish nowhere: with as
many of them the variance is too small where no rows are, and the mean goes on as if it knew.
"""

from __future__ import annotations

import numpy as np
from matplotlib import pyplot as plt

import kernattn as ka


def run(quick: bool = False) -> None:
    n, features = (200, 24) if quick else (2000, 24)
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (n, 1))
    x = x[np.abs(x[:, 0] - 0.5) > 0.7]  # a gap
    y = np.sin(2 * x[:, 0]) + 0.2 * rng.standard_normal(len(x))
    grid = np.linspace(-9, 9, 400)[:, None]
    kernel = ka.kernels.Gaussian(lengthscale=0.7)
    maps = {
        "Nystrom landmarks": ka.features.nystrom(x, kernel, features, rng=0),
        "random features": ka.random_features(kernel, 1, features, rng=0),
    }
    figure, axes = plt.subplots(2, 1, figsize=(8, 5.4), sharex=True, sharey=True, layout="constrained")
    for axis, (name, phi) in zip(axes, maps.items(), strict=True):
        process = ka.solvers.gp(ka.solvers.moments(x, phi, y=y), noise=0.2, amplitude=1.0)
        mean, spread = process.mean(grid), 2 * np.sqrt(process.variance(grid))
        axis.fill_between(grid[:, 0], mean - spread, mean + spread, alpha=0.25, linewidth=0)
        axis.plot(grid[:, 0], mean)
        axis.plot(x[:: max(1, len(x) // 150), 0], y[:: max(1, len(x) // 150)], ".", color="0.4", markersize=2)
        for level in (-2, 2):
            axis.axhline(level, color="0.5", linewidth=0.8, linestyle=":")
        axis.set(title=f"{features} {name}")
    axes[0].set_ylim(-3.5, 3.5)
    axes[1].set_xlabel("x")
    figure.suptitle(f"{len(x)} rows, some of them drawn; noise 0.2")


if __name__ == "__main__":
    run()
    plt.show()
