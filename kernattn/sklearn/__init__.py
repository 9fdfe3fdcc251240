r"""Estimators of scikit-learn on feature maps, :math:`\phi(x)^T \phi(y) \approx k(x, y)`, and on their moments."""

from kernattn._runtime.extras import require as _require

_require("sklearn", "scikit-learn", "kernattn.sklearn", extra="sklearn")

from kernattn.sklearn._classifier import FeatureClassifier  # noqa: E402
from kernattn.sklearn._exact import ExactKernelRidge  # noqa: E402
from kernattn.sklearn._gp import FeatureGP  # noqa: E402
from kernattn.sklearn._logistic import FeatureLogistic  # noqa: E402
from kernattn.sklearn._pca import FeaturePCA  # noqa: E402
from kernattn.sklearn._regressor import FeatureRegressor  # noqa: E402
from kernattn.sklearn._ridge import FeatureRidge  # noqa: E402
from kernattn.sklearn._svc import FeatureSVC  # noqa: E402
from kernattn.sklearn._transformers import NystromFeatures, PolynomialSketchFeatures, RandomFeatures  # noqa: E402

__all__ = [
    "ExactKernelRidge",
    "FeatureClassifier",
    "FeatureGP",
    "FeatureLogistic",
    "FeaturePCA",
    "FeatureRegressor",
    "FeatureRidge",
    "FeatureSVC",
    "NystromFeatures",
    "PolynomialSketchFeatures",
    "RandomFeatures",
]


def __dir__() -> list[str]:
    return __all__
