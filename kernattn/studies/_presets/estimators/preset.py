"""The study of estimators as a row of the table of presets."""

from __future__ import annotations

from kernattn.studies._presets.estimators.figures import FIGURES
from kernattn.studies._presets.estimators.verdicts import verdicts
from kernattn.studies._presets.preset import Preset

ESTIMATORS = Preset(
    title="Every estimator at as many features",
    claim="Each newer map has the lower variance: positive features err less than trigonometric ones in attention, "
    "and hyperbolic ones less than positive ones (Choromanski et al. 2021), optimal positive ones less still "
    "(Likhosherstov et al. 2022), and dense-exponential ones shaped by the data least, with one map or with two "
    "(FAVOR#, Likhosherstov et al. 2023). Of trigonometric maps, pairs of cosine and sine are better than cosines of a "
    "random phase for the Gaussian kernel (Sutherland and Schneider 2015). The tilts of FAVOR# minimise the mean "
    "logarithm of a term's second moment, which we call the typical second moment; few pairs carry the squared error.",
    cost="quick 6, full 40 CPU seconds, after the first run has compiled",
    sweep="kernattn.studies._presets.estimators.measure:sweep",
    verdicts=verdicts,
    formula=r"\frac{\sum_{i j} \operatorname{Var} \hat{k}(q_i, k_j)}{\sum_{i j} k(q_i, k_j)^2}",
    figures=FIGURES,
)
