"""The study of tails as a row of the table of presets."""

from __future__ import annotations

from kernattn.studies._presets.preset import Preset
from kernattn.studies._presets.tails.figures import FIGURES
from kernattn.studies._presets.tails.verdicts import verdicts

TAILS = Preset(
    title="Probabilities of large deviations",
    claim="Estimates of the regularised softmax kernel by positive features, of frequencies as long as d^1/2, obey a "
    "bound on P(K' > a) that is exponentially small in m, and a smaller one where these are orthogonal, m <= d "
    "(Choromanski et al. 2021, theorem 3). Here it is asked whether that holds of the softmax kernel itself, for "
    "normal frequencies, three estimators and both tails. Bounded terms, as those of trigonometric features, "
    "obey Hoeffding's bound (Rahimi and Recht 2007).",
    cost="quick 4, full 90 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.tails.measure:sweep",
    verdicts=verdicts,
    formula=r"\hat{k} = \frac{1}{m} \sum_l t_l, \quad "
    r"P(\hat{k} > a) \le e^{-m s a} (\mathrm{E} e^{s t})^m, \quad s > 0",
    figures=FIGURES,
)
