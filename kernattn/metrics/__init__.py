"""How far an approximation is from what it approximates: bias, variance, Gram matrices and attention outputs.

Arrays come back in the kind and dtype of the first argument; the errors of matrices are floats of the host. Arguments
that do not fit raise before any work: ShapeError, EmptyInputError, DTypeError, MixedLibraryError or ParameterError.
"""

from kernattn._runtime.deprecated import old_names
from kernattn.metrics._attention import DeltaMethod, attention_kl, attention_mse, ratio_delta_method
from kernattn.metrics._certify import Certificate, certify
from kernattn.metrics._delta import attention_delta_method
from kernattn.metrics._estimates import Interval, bias_and_ci, empirical_variance, mean_and_ci, variance_ratio
from kernattn.metrics._gram import GramErrors, gram_errors
from kernattn.metrics._quantiles import median_and_ci, proportion_and_ci, quantile_and_ci
from kernattn.metrics._spectral import effective_dimension, spectral_delta

__all__ = [
    "Certificate",
    "DeltaMethod",
    "GramErrors",
    "Interval",
    "attention_delta_method",
    "attention_kl",
    "attention_mse",
    "bias_and_ci",
    "certify",
    "effective_dimension",
    "empirical_variance",
    "gram_errors",
    "mean_and_ci",
    "median_and_ci",
    "proportion_and_ci",
    "quantile_and_ci",
    "ratio_delta_method",
    "spectral_delta",
    "variance_ratio",
]


def __dir__() -> list[str]:
    return __all__


__getattr__ = old_names(
    __name__,
    {
        "row_kl": (  # the old order
            "kernattn.metrics.attention_kl(estimate, exact)",
            lambda exact, estimate: attention_kl(estimate, exact),
        ),
        "settled": "kernattn.metrics._settled.where_settled",
        "tilted_moment": "kernattn.metrics._tilted.tilted_moment",
    },
)
