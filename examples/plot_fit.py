"""
Error of attention by fitted and by random maps
===============================================

Patches of a photograph attend to each other. The error of attention's outputs, over that of attending to every key
alike, on patches that no map has seen: of the best random map, and of maps that are fitted to other patches of the same
photograph. A fit takes seconds of CPU time.
"""

from __future__ import annotations

import numpy as np
from matplotlib import pyplot as plt

import kernattn as ka


def run(quick: bool = False) -> None:
    numbers, count = ((16,), 96) if quick else ((16, 32, 64, 128), 512)
    kernel, rng = ka.kernels.Softmax(), np.random.default_rng(0)
    x = 0.5 * ka.studies.real_rows("patches", 2 * count, rng)  # (2 n, 64)
    seen, held = x[:count], x[count:]
    exact = ka.softmax_attention(held, held, held)
    uniform = np.mean((held.mean(axis=0) - exact) ** 2)

    def error(phi: ka.features.FeatureMap) -> float:
        return float(np.mean((ka.linear_attention(held, held, held, phi) - exact) ** 2) / uniform)

    errors: dict[str, list[float]] = {"random": [], "fitted": []}
    for m in numbers:
        drawn = ka.random_features(kernel, 64, m, data=(seen, seen), rng=0)
        errors["random"].append(float(np.median([error(drawn.redraw(i)) for i in range(8)])))
        errors["fitted"].append(error(ka.features.fit(kernel, (seen, seen), m, rng=0)))
    figure, axis = plt.subplots(figsize=(5, 3.6), layout="constrained")
    for name, marker in zip(errors, "o^", strict=True):
        axis.loglog(numbers, errors[name], marker=marker, label=name)
    axis.axhline(1.0, color="0.5", linewidth=1.0, label="every key alike")
    axis.set(xlabel="features m", ylabel="squared error over uniform attention's")
    axis.set_xticks(numbers, map(str, numbers))
    axis.minorticks_off()
    axis.legend(frameon=False)
    figure.suptitle("patches that no map has seen")


if __name__ == "__main__":
    run()
    plt.show()
