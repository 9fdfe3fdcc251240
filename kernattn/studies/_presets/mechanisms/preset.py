"""The study of mechanisms as a row of the table of presets."""

from __future__ import annotations

from kernattn.studies._presets.mechanisms.figures import FIGURES
from kernattn.studies._presets.mechanisms.verdicts import verdicts
from kernattn.studies._presets.preset import Preset

MECHANISMS = Preset(
    title="Mechanisms of attention at equal flops",
    claim="Benchmarks of efficient attention end in one ranking of the mechanisms (Tay et al. 2021, table 1). Here "
    "it is asked whether one ranking serves at every temperature of the softmax, at equal flops and without training: "
    "whether patterns, low rank, features and hashing keep their places from rows that look at everything to rows that "
    "look at a few keys.",
    cost="quick 5, full 130 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.mechanisms.measure:sweep",
    verdicts=verdicts,
    formula=r"\frac{\sum_i |\hat{o}_i - o_i|^2}{\sum_i |u - o_i|^2}, \quad "
    r"o_i = \sum_j \frac{e^{q_i^T k_j / (d^{1/2} T)}}{Z_i} v_j, \quad "
    r"u = \frac{1}{n} \sum_j v_j",
    figures=FIGURES,
    data=True,
)
