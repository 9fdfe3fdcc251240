"""
Error of attention over the number of features
==============================================

The squared error of linear attention against exact softmax attention, and of the baseline that every approximation has
to beat: attending to all keys alike. At twice the norm the same features no longer do.
"""

from __future__ import annotations

import numpy as np
from matplotlib import pyplot as plt

import kernattn as ka


def run(quick: bool = False) -> None:
    n, dim, draws = (64, 16, 2) if quick else (512, 16, 10)
    counts = (16, 64) if quick else (16, 32, 64, 128, 256, 512)
    rng = np.random.default_rng(100)

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, norm in zip(axes, (0.5, 1.0), strict=True):
        q, k = norm * rng.standard_normal((2, n, dim))
        v = rng.standard_normal((n, dim))
        exact = ka.softmax_attention(q, k, v)
        for estimator in ("trigonometric", "positive"):
            errors = [
                [
                    np.mean((ka.linear_attention(q, k, v, draw(estimator, dim, m, seed)) - exact) ** 2)
                    for seed in range(draws)
                ]
                for m in counts
            ]
            axis.loglog(
                counts, np.median(errors, axis=1), label=f"{estimator}, orthogonal", **ka.studies.line_style(estimator)
            )
        uniform = np.mean((np.mean(v, axis=0) - exact) ** 2)
        axis.axhline(uniform, color="0.5", linewidth=2.4, label="uniform attention")
        axis.set(title=f"queries and keys N(0, {norm}²)", xlabel="features")
        axis.set_xticks(counts, labels=map(str, counts))
        axis.minorticks_off()
    axes[0].set_ylabel("mean squared error")
    axes[0].legend(frameon=False)
    figure.suptitle(f"n = {n}, d = {dim}, median of {draws} draws")


def draw(estimator: str, dim: int, num_features: int, seed: int) -> ka.features.FeatureMap:
    return ka.random_features(ka.kernels.Softmax(), dim, num_features, estimator=estimator, rng=seed)


if __name__ == "__main__":
    run()
    plt.show()
