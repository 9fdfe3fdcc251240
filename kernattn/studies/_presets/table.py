"""The table of presets."""

from kernattn.studies._presets.attention.study import ATTENTION
from kernattn.studies._presets.attention_error import ATTENTION_ERROR
from kernattn.studies._presets.capacity import CAPACITY
from kernattn.studies._presets.coverage import COVERAGE
from kernattn.studies._presets.dtype import DTYPE
from kernattn.studies._presets.estimators.findings import ESTIMATORS
from kernattn.studies._presets.gates import GATED_DIGITS
from kernattn.studies._presets.gaussian_kernel import GAUSSIAN_KERNEL
from kernattn.studies._presets.independence import INDEPENDENCE
from kernattn.studies._presets.learned import LEARNED
from kernattn.studies._presets.mechanisms.findings import MECHANISMS
from kernattn.studies._presets.norms import NORMS
from kernattn.studies._presets.nystrom import NYSTROM
from kernattn.studies._presets.polynomial_sketch.findings import POLYNOMIAL_SKETCH
from kernattn.studies._presets.preset import Preset
from kernattn.studies._presets.redraw import REDRAW
from kernattn.studies._presets.regression import REGRESSION
from kernattn.studies._presets.softmax_kernel import SOFTMAX_KERNEL
from kernattn.studies._presets.spectral import SPECTRAL
from kernattn.studies._presets.tails.findings import TAILS
from kernattn.studies._presets.time_to_error import TIME_TO_ERROR
from kernattn.studies._presets.uniform import UNIFORM_ERROR

PRESETS: dict[str, Preset] = {
    "attention": ATTENTION,
    "softmax-kernel": SOFTMAX_KERNEL,
    "gaussian-kernel": GAUSSIAN_KERNEL,
    "attention-error": ATTENTION_ERROR,
    "dtype": DTYPE,
    "norms": NORMS,
    "uniform": UNIFORM_ERROR,
    "tails": TAILS,
    "spectral": SPECTRAL,
    "polynomial-sketch": POLYNOMIAL_SKETCH,
    "nystrom": NYSTROM,
    "regression": REGRESSION,
    "coverage": COVERAGE,
    "independence": INDEPENDENCE,
    "redraw": REDRAW,
    "estimators": ESTIMATORS,
    "learned": LEARNED,
    "time-to-error": TIME_TO_ERROR,
    "mechanisms": MECHANISMS,
    "gates": GATED_DIGITS,
    "capacity": CAPACITY,
}
