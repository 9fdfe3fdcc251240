"""The study of sketches as a row of the table of presets."""

from __future__ import annotations

from kernattn.studies._presets.polynomial_sketch.figures import FIGURES
from kernattn.studies._presets.polynomial_sketch.verdicts import verdicts
from kernattn.studies._presets.preset import Preset

POLYNOMIAL_SKETCH = Preset(
    title="Sketches of the polynomial kernel",
    claim="The variance of products of real projections (Kar and Karnick 2012) and of TensorSRHT grows as 3^p / m with "
    "the degree p; TensorSketch (Pham and Pagh 2013) has the bound (2 + 3^p) / m (Avron, Nguyen and Woodruff 2014), "
    "which is read as the same growth. Complex weights bring it down to 2^p / m (Wacker, Ohana and Filippone 2022). "
    "TensorSRHT has no more variance than the Rademacher sketch at odd degrees (Wacker, Kanagawa and Filippone 2022). "
    "Trees of sketches, which are none of the maps here, need only polynomially many features (Ahle et al. 2020).",
    cost="quick 5, full 130 CPU seconds",
    sweep="kernattn.studies._presets.polynomial_sketch.measure:sweep",
    verdicts=verdicts,
    formula=r"\operatorname{Var} \hat{k}_{\mathrm{gaussian}} = \frac{1}{m} ((1 + 2 c^2)^p - c^{2 p}), "
    r"\quad c = x \cdot y, \quad |x| = |y| = 1",
    figures=FIGURES,
)
