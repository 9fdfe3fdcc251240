"""
Level and power of the two-sample test
======================================

Left, how often the two-sample test rejects samples of one law, against the level it is asked for: 120 and 200 rows,
normal in four dimensions. The band holds 95 % of such counts. Right, how often it finds at 1 % that tails are heavier,
or that the mean has moved by a tenth, against the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib import pyplot as plt
from scipy.stats import binom

import kernattn as ka

DIM = 4
Draw = Callable[[np.random.Generator, int], np.ndarray]
LAWS: dict[str, Draw] = {
    "tails of Student's t, 4 degrees": lambda rng, n: rng.standard_t(4, (n, DIM)) / 2**0.5,
    "mean moved by 0.1": lambda rng, n: rng.standard_normal((n, DIM)) + 0.1,
}


def p_values(other: Draw, sizes: tuple[int, int], draws: int, phi: ka.features.FeatureMap) -> np.ndarray:
    """Return p-values of normal samples against another law."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(draws):
        samples = rng.standard_normal((sizes[0], DIM)), other(rng, sizes[1])
        found.append(ka.solvers.mmd(*(ka.solvers.moments(each, phi) for each in samples)).p_value)
    return np.array(found)


def run(quick: bool = False) -> None:
    draws, counts = (50, (100, 400)) if quick else (1000, (100, 200, 400, 800, 1600))
    phi = ka.random_features(ka.kernels.Gaussian(2.0), DIM, 64, rng=0)
    _, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    null = p_values(lambda rng, n: rng.standard_normal((n, DIM)), (120, 200), draws, phi)
    levels = np.geomspace(0.01, 0.5, 40)
    left.fill_between(levels, *(binom.ppf(q, draws, levels) / draws for q in (0.025, 0.975)), alpha=0.2, linewidth=0)
    left.plot(levels, levels, color="0.5", linewidth=0.8)
    left.plot(levels, [np.mean(null <= level) for level in levels], ".", color="C0")
    left.set(xscale="log", yscale="log", xlabel="level", ylabel="share rejected", title=f"one law, {draws} draws")
    for name, law in LAWS.items():
        power = [np.mean(p_values(law, (n, n), max(20, draws // 20), phi) <= 0.01) for n in counts]
        right.semilogx(counts, power, "o-", label=name)
    right.set(xlabel="rows of each sample", ylabel="share rejected at 1 %", title="two laws", ylim=(-0.03, 1.03))
    right.legend(frameon=False)


if __name__ == "__main__":
    run()
    plt.show()
