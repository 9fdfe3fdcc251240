"""The attention study as a row of the table of presets."""

from __future__ import annotations

from kernattn.studies._presets.attention.figures import FIGURES
from kernattn.studies._presets.attention.report import summary
from kernattn.studies._presets.attention.verdicts import verdicts
from kernattn.studies._presets.preset import Preset

ATTENTION = Preset(
    title="Random features against exact attention, on real tokens",
    claim="Random features approximate softmax attention on real inputs at a linear cost (Choromanski et al. 2021; "
    "Peng et al. 2021). Neither paper asks how far attending to all keys alike would be from it.",
    cost="quick 11, full 97 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.attention.study:by_axes",
    verdicts=verdicts,
    figures=FIGURES,
    formula=r"\hat{A} = \frac{\phi(q)^T \sum_j \phi(k_j) v_j^T}{\phi(q)^T \sum_j \phi(k_j)} \approx "
    r"\frac{\sum_j \exp(q^T k_j / \sqrt{d}) v_j^T}{\sum_j \exp(q^T k_j / \sqrt{d})}",
    expected={"variance_ratio": 1.0},
    page=summary,
)
