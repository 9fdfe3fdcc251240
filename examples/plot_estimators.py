"""
Variance of estimates of the softmax kernel, over the angle
===========================================================

The variance of an estimate of the softmax kernel, relative to the kernel's square, against the angle between x and y.
Trigonometric features are exact for equal inputs, positive ones for opposite inputs; orthogonal frequencies help both.
Nothing is sampled here: the curves are the closed forms.
"""

from __future__ import annotations

import numpy as np
from matplotlib import pyplot as plt

import kernattn as ka

ESTIMATORS = ("trigonometric", "positive", "hyperbolic", "optimal_positive")


def run(quick: bool = False) -> None:
    dim, num_features = 16, 64
    angle = np.linspace(0, np.pi, 9 if quick else 61)
    x = np.zeros((len(angle), dim))
    y = np.zeros((len(angle), dim))
    x[:, 0] = 1
    y[:, 0], y[:, 1] = np.cos(angle), np.sin(angle)

    kernel = ka.kernels.Softmax(scale=1.0)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, projection in zip(axes, ("iid", "orthogonal"), strict=True):
        for estimator in ESTIMATORS:
            phi = ka.random_features(
                kernel,
                dim,
                num_features,
                estimator=estimator,
                projection=projection,
                data=np.concatenate([x, y]),
                rng=0,
            )
            relative = phi.variance(x, y) / kernel.pairs(x, y) ** 2
            look = ka.studies.line_style(estimator, projection) | {"markevery": 0.2}
            axis.semilogy(np.degrees(angle), np.maximum(relative, 1e-9), label=estimator, **look)
        axis.set(title=projection, xlabel="angle between x and y, degrees", ylim=(1e-6, 1))
    axes[0].set_ylabel("relative variance")
    axes[1].legend(frameon=False)
    figure.suptitle(f"unit vectors, d = {dim}, {num_features} features")


if __name__ == "__main__":
    run()
    plt.show()
