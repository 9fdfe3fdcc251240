"""
Pairs that a state recalls, by four rules
=========================================

Pairs of keys and values stream into a state of d x d numbers, and then keys ask for their values: the nearest of 64
values is the answer. Keys are random, and nothing is trained. Where each key comes once, a sum of pairs serves best.
Where each comes three times and is asked for its last value, in any order, the sum answers with all three; a gate tells
late from early, and the delta rule replaces what a key stored before. After another text of 256 pairs, which a reset
would end, and for questions with noise as large as the key, it takes both: the gated delta rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib import pyplot as plt

import kernattn as ka

DIM, VALUES = 32, 64
DECAYS = 0.0, -0.003, -0.01, -0.03, -0.1  # logs, of which each gated rule gets the one that serves it best
CASES = {
    "each key once": {"times": 1, "before": 0, "noise": 0.0},
    "each key three times": {"times": 3, "before": 0, "noise": 0.0},
    "after another text, noisy": {"times": 3, "before": 256, "noise": 1.0},
}


def recall(rng: np.random.Generator, batch: int, pairs: int, times: int, before: int, noise: float) -> dict[str, float]:
    """Return the share of right answers of each rule."""
    keys = rng.standard_normal((batch, before + pairs, DIM))
    keys /= np.linalg.norm(keys, axis=-1, keepdims=True)
    values = np.sign(rng.standard_normal((VALUES, DIM)))
    which = np.tile(np.repeat(np.arange(before + pairs), [1] * before + [times] * pairs), (batch, 1))
    which[:, before:] = rng.permuted(which[:, before:], axis=1)
    told = rng.integers(VALUES, size=which.shape)
    last = np.empty(keys.shape[:2], int)
    np.put_along_axis(last, which, told, axis=1)
    k, v = np.take_along_axis(keys, which[..., None], axis=1), values[told]
    asked = keys[:, before:] + noise * rng.standard_normal((batch, pairs, DIM)) / DIM**0.5

    reset, beta = np.zeros(which.shape), np.ones(which.shape)
    reset[:, before] = -np.inf  # nothing of the text before remains
    rules: dict[str, list[dict[str, Any]]] = {
        "linear": [{}],
        "gated": [{"g": reset + decay} for decay in DECAYS],
        "delta": [{"beta": beta}],
        "gated delta": [{"g": reset + decay, "beta": beta} for decay in DECAYS],
    }
    found = {}
    for rule, choices in rules.items():
        states = [ka.gated_linear_attention(k, k, v, **gates)[1].s for gates in choices]
        answers = [np.argmax(asked @ s @ values.T, axis=-1) for s in states]
        found[rule] = max(float(np.mean(answer == last[:, before:])) for answer in answers)
    return found


def run(quick: bool = False) -> dict[str, list[dict[str, float]]]:
    counts, batch = ((4, 16), 4) if quick else ((2, 4, 8, 12, 16, 24, 32, 48, 64), 48)
    rng, found = np.random.default_rng(0), {}
    _, panels = plt.subplots(1, 3, figsize=(11, 3.6), sharey=True, layout="constrained")
    for axes, (title, case) in zip(panels, CASES.items(), strict=True):
        shares = found[title] = [recall(rng, batch, pairs, **case) for pairs in counts]
        for rule, style in zip(shares[0], ("o-", "s--", "o-", "s--"), strict=True):
            axes.plot(counts, [share[rule] for share in shares], style, label=rule, linewidth=1.2, markersize=4)
        axes.axvline(DIM, color="0.8", zorder=0)
        axes.set(xlabel=f"pairs (line: d = {DIM})", title=title)
    panels[0].set(ylabel="share of right answers", ylim=(0, 1.03))
    panels[0].legend(frameon=False)
    return found


if __name__ == "__main__":
    run()
    plt.show()
