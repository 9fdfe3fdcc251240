"""
Peaks of a state when keys become louder
========================================

Causal attention with features e^x over a sequence whose keys become thirty times louder half-way. The peak of each
feature, the scale of its sums, rises when the loud keys come, and not before; outputs up to that point are those of
the quiet sequence alone.
"""

from __future__ import annotations

import numpy as np
from matplotlib import pyplot as plt

import kernattn as ka


def run(quick: bool = False) -> None:
    n, dim = (32, 8) if quick else (200, 16)
    rng = np.random.default_rng(100)
    q, k, v = 0.5 * rng.standard_normal((3, n, dim))
    louder = np.where(np.arange(n)[:, None] < n // 2, k, 30 * k)
    phi = ka.features.exp()

    quiet, _ = ka.causal_linear_attention(q, k, v, phi)
    loud, _ = ka.causal_linear_attention(q, louder, v, phi)
    state = ka.initial_state(phi, (), dim, like=v)
    peaks = []
    for t in range(n):
        _, state = ka.linear_attention_step(state, q[t], louder[t], v[t], phi)
        peaks.append(state.peak)

    figure, (top, bottom) = plt.subplots(2, 1, figsize=(7, 5), sharex=True, layout="constrained")
    top.plot(peaks, color="tab:blue", linewidth=0.6)
    top.set_ylabel("peak of each feature")
    bottom.plot(np.max(np.abs(loud - quiet), axis=-1), color="tab:orange")
    bottom.set(xlabel="token", ylabel="change of the output")
    figure.suptitle("keys are 30 times louder from the middle on")


if __name__ == "__main__":
    run()
    plt.show()
