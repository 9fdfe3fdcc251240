"""
Softmax weight that rounds of hashing find
==========================================

Reformer's rounds of hashing look for the keys that weigh most. Each round adds pairs, none of which counts twice, and
with them a share of the softmax weights of all keys. That is large where few keys matter, and tokens of near directions
share a bucket; where all keys weigh alike, the share of the weights is the share of the pairs.
"""

from __future__ import annotations

import numpy as np
from matplotlib import pyplot as plt

import kernattn as ka


def run(quick: bool = False) -> None:
    n, dim, chunk = 256 if quick else 2048, 32, 32
    most = 2 if quick else 8
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((n // 16, dim))
    x = centres[rng.integers(n // 16, size=n)] + 0.3 * rng.standard_normal((n, dim))  # tokens in groups of 16 or so
    keys = x / np.linalg.norm(x, axis=-1, keepdims=True)
    rotations = rng.standard_normal((most, dim, n // (2 * chunk)))
    rounds = np.arange(1, most + 1)
    plans = [ka.patterns.lsh(x, rotations=rotations[:count], chunk=chunk).plan(n) for count in rounds]
    figure, ax = plt.subplots(layout="constrained")
    for scale in (0.1, 1.0, 3.0):
        _, full = ka.attention.softmax_with_lse(x, keys, x, scale=scale)
        found = [ka.attention.softmax_with_lse(x, keys, x, scale=scale, pattern=plan)[1] for plan in plans]
        ax.plot(rounds, [np.mean(np.exp(log - full)) for log in found], marker="o", label=f"weights, scale {scale}")
    ax.plot(rounds, [plan.pairs / n**2 for plan in plans], "k--", label="pairs")
    ax.set(xlabel="rounds of hashing", ylabel="share that is kept", ylim=(0, 1), xticks=rounds)
    ax.set_title(f"n = {n}, chunks of {chunk}")
    figure.legend(loc="outside lower center", ncols=2)


if __name__ == "__main__":
    run()
    plt.show()
