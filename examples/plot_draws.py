"""
Spread of functions drawn from a Gaussian process
=================================================

The spread of functions drawn from a Gaussian process over that of the exact process, at new rows among the data and
far from them. Functions of random features alone doubt too little among the rows. Drawn by Matheron's rule, prior
features and an update at the data, their spread is the exact one; at landmarks too, where these are enough for the
kernel. 500 of 2,000 rows in four dimensions are for a Gaussian kernel, and too few for a Matern 3/2 kernel, as rough
functions are learnt from the rows nearby: the process on landmarks, and its draws, doubt more than the exact one.
"""

from __future__ import annotations

import numpy as np
from matplotlib import pyplot as plt

import kernattn as ka


def run(quick: bool = False) -> None:
    n, landmarks, features, count, new = (200, 60, 256, 200, 40) if quick else (2000, 500, 2048, 2000, 200)
    rng, noise, dim = np.random.default_rng(0), 0.3, 4
    x = rng.standard_normal((n, dim))
    y = np.sin(x[:, 0]) + noise * rng.standard_normal(n)
    places = {"among the rows": rng.standard_normal((new, dim)), "far from them": 5 + rng.standard_normal((new, dim))}
    figure, grid = plt.subplots(2, 2, figsize=(8, 6), sharey=True, layout="constrained")
    for axes, kernel in zip(grid, (ka.kernels.Gaussian(1.5), ka.kernels.Matern(1.5, 1.5)), strict=True):
        matrix = kernel(x) + noise**2 * np.eye(n)
        on_landmarks = ka.features.nystrom(x, kernel, landmarks, method="kmeans", rng=0)
        random = ka.random_features(kernel, dim, features, "trigonometric", rng=0)
        prior = ka.random_features(kernel, dim, features, "trigonometric", "sobol", rng=1)
        one, other = (
            ka.solvers.gp(ka.solvers.moments(x, phi, y=y), noise=noise, amplitude=1.0) for phi in (on_landmarks, random)
        )
        drawn = {
            "random features": other.draw(count, rng=2),
            "at landmarks": one.draw(count, prior=prior, rng=2),
            "at the data": one.draw(count, prior=prior, data=(x, y), rng=2),
        }
        for axis, (place, rows) in zip(axes, places.items(), strict=True):
            across = kernel(rows, x)
            exact = np.sqrt(1 - np.sum(across * np.linalg.solve(matrix, across.T).T, axis=1))
            ratios = [f(rows).std(axis=-1) / exact for f in drawn.values()]
            axis.boxplot(ratios, tick_labels=list(drawn), showfliers=False)
            axis.axhline(1.0, color="0.5", linewidth=0.8, linestyle=":")
            axis.set(title=f"{type(kernel).__name__}, {place}")
            for name, ratio in zip(drawn, ratios, strict=True):
                print(f"{type(kernel).__name__:8} {place:14} {name:15} spread over the exact: {ratio.mean():.3f}")
        axes[0].set_ylabel("spread of draws over the exact one")
    figure.suptitle(f"{n} rows in {dim} dimensions, {features} features, {landmarks} landmarks")


if __name__ == "__main__":
    run()
    plt.show()
