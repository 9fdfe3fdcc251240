"""
Patterns of attention: which keys a query sees
==============================================

The patterns of `kernattn.patterns` for 96 tokens, a row of pixels for each query. Dark pairs are seen. Light ones are
computed beside them and hidden by bits, where a visit of 64 queries and 64 keys is not seen whole.
"""

from __future__ import annotations

import numpy as np
from matplotlib import pyplot as plt

import kernattn as ka


def run(quick: bool = False) -> None:
    n = 96
    patterns = {
        "local(9)": ka.patterns.local(9),
        "local(24, dilation=4)": ka.patterns.local(24, dilation=4),
        "strided(10, 10)": ka.patterns.strided(10, 10),
        "fixed(12, 1)": ka.patterns.fixed(12, 1),
        "longformer(5, [0, 40])": ka.patterns.longformer(5, [0, 40]),
        "bigbird(8, 1)": ka.patterns.bigbird(8, 1, rng=0),
        "image_1d(16, 8)": ka.patterns.image_1d(16, 8),
        "image_2d((8, 12), (4, 4), 1)": ka.patterns.image_2d((8, 12), (4, 4), 1),
        "axial((8, 12), 0)": ka.patterns.axial((8, 12), 0),
        "neighborhood((8, 12), 3)": ka.patterns.neighborhood((8, 12), 3),
        "sinks(3) | local(9, 0)": ka.patterns.sinks(3) | ka.patterns.local(9, 0),
        "documents(ids)": ka.patterns.documents(np.repeat([0, 1, 2], [40, 30, 26])),
    }
    shown = dict(list(patterns.items())[:4]) if quick else patterns
    figure, axes = plt.subplots(len(shown) // 4, 4, figsize=(9, 2.4 * len(shown) // 4), layout="constrained")
    for axis, (name, pattern) in zip(axes.flat, shown.items(), strict=True):
        plan = pattern.plan(n)
        plan.plot(axis)
        axis.set(xlabel="", ylabel="", xticks=[], yticks=[])
        axis.set_title(f"{name}\n{plan.pairs / n:.1f} keys a row", fontsize=8)
    figure.suptitle(f"n = {n}: queries down, keys across")


if __name__ == "__main__":
    run()
    plt.show()
