"""
Thompson sampling by the slopes of drawn functions
==================================================

The least value of Hartmann-6 that is found, over evaluations. Every round draws functions of a Gaussian process, and
evaluates the true function where each of them is least. Functions that are drawn as functions can be minimised by
their slopes, which `kernattn.vjp` returns.
"""

from __future__ import annotations

import numpy as np
from matplotlib import pyplot as plt
from scipy import optimize

import kernattn as ka

DIM, LEAST = 6, -3.32237
ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
A = np.array(
    [
        [10, 3, 17, 3.5, 1.7, 8],
        [0.05, 10, 17, 0.1, 8, 14],
        [3, 3.5, 1.7, 10, 17, 8],
        [17, 8, 0.05, 10, 0.1, 14],
    ]
)
P = 1e-4 * np.array(
    [
        [1312, 1696, 5569, 124, 8283, 5886],
        [2329, 4135, 8307, 3736, 1004, 9991],
        [2348, 1451, 3522, 2883, 3047, 6650],
        [4047, 8828, 8732, 5743, 1091, 381],
    ]
)


def hartmann(x: np.ndarray) -> np.ndarray:
    """Return the values of rows of the unit cube; Surjanovic and Bingham's library of test functions has it."""
    return -np.exp(-np.sum(A * (x[:, None] - P) ** 2, axis=-1)) @ ALPHA


def least_of(functions: ka.solvers.Draws, rng: np.random.Generator, raw: int, x: np.ndarray) -> np.ndarray:
    """Return where each function is least: the best of many random rows and of rows near the best, then by slopes."""
    near = np.clip(x + 0.1 * rng.standard_normal((raw // 4, DIM)), 0, 1)
    starts = np.concatenate([rng.uniform(size=(raw, DIM)), near])
    values = functions(starts)
    places = []
    for i in range(functions.count):
        pick = np.zeros((1, functions.count))
        pick[0, i] = 1.0

        def value_and_slope(row: np.ndarray, i: int = i, pick: np.ndarray = pick) -> tuple[float, np.ndarray]:
            value, pullback = ka.vjp(functions, row[None])
            return value[0, i], pullback(pick).x[0]

        first = starts[np.argmin(values[:, i])]
        found = optimize.minimize(value_and_slope, first, jac=True, method="L-BFGS-B", bounds=[(0, 1)] * DIM)
        places.append(found.x)
    return np.array(places)


def thompson(rounds: int, batch: int, raw: int, rng: np.random.Generator) -> np.ndarray:
    """Return the least value so far after every evaluation."""
    x = rng.uniform(size=(2 * DIM, DIM))
    y = hartmann(x)
    kernel = ka.kernels.Matern(2.5, np.full(DIM, 0.5))
    for _ in range(rounds):
        level, unit = y.mean(), y.std()
        targets = (y - level) / unit
        phi = ka.features.nystrom(x, kernel, len(x), method="uniform", rng=rng)  # every row is a landmark
        kernel = ka.solvers.tune(x, targets, phi, ard=True, max_iterations=30).kernel
        lengths = np.clip(kernel.lengthscale, 0.05, 3.0)
        kernel = ka.kernels.Matern(2.5, lengths)
        phi = ka.features.nystrom(x, kernel, len(x), method="uniform", rng=rng)
        process = ka.solvers.gp(ka.solvers.moments(x, phi, y=targets), lowest=1e-6)
        new = least_of(process.draw(batch, rng=rng), rng, raw, x[np.argmin(y)])
        x, y = np.concatenate([x, new]), np.concatenate([y, hartmann(new)])
    return np.minimum.accumulate(y)


def run(quick: bool = False) -> None:
    repeats, rounds, batch, raw = (1, 2, 2, 64) if quick else (8, 25, 4, 1024)
    found = np.array([thompson(rounds, batch, raw, np.random.default_rng(seed)) for seed in range(repeats)])
    random = np.array(
        [
            np.minimum.accumulate(hartmann(np.random.default_rng(seed).uniform(size=(found.shape[1], DIM))))
            for seed in range(repeats)
        ]
    )
    _, axis = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for name, values in (("Thompson sampling", found), ("random rows", random)):
        regret = np.median(values, axis=0) - LEAST
        axis.plot(np.arange(1, len(regret) + 1), regret, label=name)
        print(f"{name}: {regret[-1]:.4f} above the least after {len(regret)} evaluations, median of {repeats}")
    axis.set(xlabel="evaluations", ylabel="least value found, above the least there is", yscale="log")
    axis.legend()


if __name__ == "__main__":
    run()
    plt.show()
