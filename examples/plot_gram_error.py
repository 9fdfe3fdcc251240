"""
Errors of Gram matrices, beside scikit-learn's RBFSampler
=========================================================

Squared errors of Gram matrices of the Gaussian kernel on real data, beside those of scikit-learn's RBFSampler with as
many features, against the lengthscale in units of the median distance. Lines are closed forms, averaged over pairs of
rows; dots are means over draws. Frequencies that cover directions evenly gain most where the kernel is wide. Where it
is narrow, pairs are far apart, and only landmarks help, as those of the Nystrom map.

Run as a script it prints the table of the guide.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib import pyplot as plt
from scipy.spatial.distance import pdist

import kernattn as ka

DIM, ROWS = 64, 300
PROJECTIONS = ("iid", "orthogonal", "hadamard", "moment_matched")


def real(name: str, count: int) -> Callable[[], np.ndarray]:
    return lambda: ka.studies.real_rows(name, count, np.random.default_rng(1))


DATA: dict[str, Callable[[], np.ndarray]] = {
    "digits": real("digits", 1797),
    "patches, each standardised": real("patches", 1800),
    "patches, pixels standardised": real("pixels", 1800),
}


def measured(rows: np.ndarray, exact: np.ndarray, draw: Callable[[int], Callable], draws: int) -> float:
    features = (draw(seed)(rows) for seed in range(draws))
    return float(np.mean([np.mean((phi @ phi.T - exact) ** 2) for phi in features]))


def closed(rows: np.ndarray, phi: ka.features.FeatureMap) -> float:
    x, y = rows[:, None], rows[None]
    return float(np.mean(phi.variance(x, y) + phi.bias(x, y) ** 2))


def ratios(x: np.ndarray, times: float, m: int, draws: int) -> dict[str, tuple[float | None, float]]:
    """RBFSampler's squared error over each map's, closed and measured, on rows that no map was fitted to."""
    from sklearn.kernel_approximation import RBFSampler

    rows, others = x[:ROWS], x[ROWS:]
    few = rows[: ROWS // 3]
    scale = times * float(np.median(pdist(rows)))
    kernel = ka.kernels.Gaussian(lengthscale=scale)
    exact = kernel(rows)
    gamma = 0.5 / scale**2
    theirs = measured(
        rows,
        exact,
        lambda seed: RBFSampler(gamma=gamma, n_components=m, random_state=seed).fit(others).transform,
        draws,
    )
    predicted = closed(few, ka.random_features(kernel, DIM, m, "phase", "iid", rng=0))
    found: dict[str, tuple[float | None, float]] = {}
    for name in PROJECTIONS:
        phi = ka.random_features(kernel, DIM, m, "trigonometric", name, rng=0)
        ours = measured(rows, exact, phi.redraw, draws)
        found[name] = None if name == "hadamard" else predicted / closed(few, phi), theirs / ours
    landmarks = measured(rows, exact, lambda seed: ka.features.nystrom(others, kernel, m, rng=seed), draws)
    found["Nystrom"] = None, theirs / landmarks
    return found


def run(quick: bool = False) -> None:
    grid, draws = ((0.5, 2.0), 2) if quick else ((0.5, 0.7, 1.0, 1.4, 2.0), 4)
    names = list(DATA)[:1] if quick else list(DATA)
    figure, axes = plt.subplots(1, len(names), figsize=(4 * len(names), 3.6), squeeze=False, layout="constrained")
    for axis, name in zip(axes[0], names, strict=True):
        x = DATA[name]()
        found = [ratios(x, times, 4 * DIM, draws) for times in grid]
        for i, map_name in enumerate(found[0]):
            axis.loglog(grid, [each[map_name][1] for each in found], "o", color=f"C{i}", label=map_name)
            if found[0][map_name][0] is not None:
                axis.loglog(grid, [each[map_name][0] for each in found], color=f"C{i}")
        axis.axhline(3, color="0.5", linewidth=0.8)
        axis.set(title=name, xlabel="lengthscale over the median distance")
    axes[0, 0].set_ylabel("RBFSampler's squared error over ours")
    axes[0, 0].legend(frameon=False)
    figure.suptitle(f"d = {DIM}, {4 * DIM} features")


def table(draws: int = 20) -> str:
    """Return the table as Markdown: measured ratios, with those of the closed forms in brackets."""
    lines = [
        "| data | lengthscale over the median | M | " + " | ".join((*PROJECTIONS, "Nystrom")) + " |",
        "|---|---:|---:|" + "---:|" * (len(PROJECTIONS) + 1),
    ]
    for name, load in DATA.items():
        x = load()
        for m in (4 * DIM, 16 * DIM):
            for times in (0.5, 1.0, 2.0):
                cells = (
                    f"{ours:.3g}" + ("" if known is None else f" ({known:.3g})")
                    for known, ours in ratios(x, times, m, draws).values()
                )
                lines.append(f"| {name} | {times:g} | {m} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
    run()
    plt.show()
