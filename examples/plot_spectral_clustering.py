"""
Spectral clustering of moons and rings
======================================

Two moons and three rings, cut by the leading eigenvectors of the affinity of all pairs, which Nystrom features give
without that matrix. The background is where new rows would belong; far from all rows it says nothing. Below, what the
eigenvalues lack of 1: left of the line, as many as there are clusters, it is next to nothing.
"""

from __future__ import annotations

import numpy as np
from matplotlib import pyplot as plt

import kernattn as ka


def moons(n: int, rng: np.random.Generator) -> np.ndarray:
    angle, moon = rng.uniform(0, np.pi, n), rng.integers(2, size=n)
    x = np.stack([np.cos(angle), np.sin(angle)], axis=1) * (1 - 2 * moon[:, None]) + np.outer(moon, [1, 0.5])
    return x + 0.05 * rng.standard_normal((n, 2))


def rings(n: int, rng: np.random.Generator) -> np.ndarray:
    angle, ring = rng.uniform(0, 2 * np.pi, n), rng.integers(3, size=n)
    return (0.5 + ring + 0.07 * rng.standard_normal(n))[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def run(quick: bool = False) -> None:
    n, landmarks = (400, 80) if quick else (4000, 400)
    rng = np.random.default_rng(0)
    _, axes = plt.subplots(2, 2, figsize=(8, 6), height_ratios=(3, 1), layout="constrained")
    for (top, bottom), shape, k, lengthscale in zip(axes.T, (moons, rings), (2, 3), (0.12, 0.17), strict=True):
        x = shape(n, rng)
        phi = ka.features.nystrom(x, ka.kernels.Gaussian(lengthscale), landmarks, rng=0)
        found = ka.solvers.spectral_clustering(x, phi, k, rng=0)
        low, high = x.min(axis=0) - 0.3, x.max(axis=0) + 0.3
        lines = np.linspace(low, high, 40 if quick else 150)
        grid = np.stack(np.meshgrid(*lines.T), axis=-1)
        extent = (low[0], high[0], low[1], high[1])
        look = {"cmap": "tab10", "vmin": 0, "vmax": 9}
        top.imshow(found.predict(grid), origin="lower", extent=extent, aspect="auto", alpha=0.2, **look)
        top.scatter(*x.T, c=found.labels, s=1, **look)
        top.set(title=f"{shape.__name__}, {k} clusters")
        bottom.semilogy(np.arange(1, 11), np.maximum(1 - found.eigenvalues[:10], 1e-6), "o")
        bottom.axvline(k + 0.5, color="0.6", linewidth=0.8)
        bottom.set(xlabel="eigenvalue", ylabel="1 - eigenvalue" if k == 2 else "")


if __name__ == "__main__":
    run()
    plt.show()
