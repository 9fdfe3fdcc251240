"""Seeds give the maps that they gave: saved studies and papers count on it.

The numbers are those of version 0.1, but for "auto" with data, which is the map of the name that it chooses. Maps along
eigenvectors are left out, whose signs are the linear algebra's.
"""

import numpy as np
import pytest

import kernattn as ka

K = ka.kernels
KERNELS = (
    K.AdditiveChi2(),
    K.ArcCosine(1),
    K.Gaussian(),
    K.Laplacian() + K.Cauchy(),
    K.Matern(),
    K.Polynomial(2),
    K.SkewedChi2(),
    K.Softmax(),
    K.Tanimoto(),
)
BY_NAME = {type(kernel).__name__: kernel for kernel in KERNELS}
ROWS = np.linspace(0.1, 1.0, 12).reshape(3, 4)
CASES = [  # kernel, estimator, from data, a sum over features
    ("Softmax", "auto", False, -0.08694708065),
    ("Softmax", "auto", True, 1.169587301),
    ("Softmax", "hyperbolic", True, -0.8270154838),
    ("Softmax", "optimal_positive", True, 0.1029142095),
    ("Softmax", "phase", True, 2.08512765),
    ("Softmax", "positive", True, -0.08694708065),
    ("Softmax", "trigonometric", True, 1.169587301),
    ("Gaussian", "auto", False, 0.5531713049),
    ("Gaussian", "auto", True, 0.5531713049),
    ("Gaussian", "hyperbolic", True, -0.5046896429),
    ("Gaussian", "optimal_positive", True, 0.1832645625),
    ("Gaussian", "phase", True, 1.573350884),
    ("Gaussian", "positive", True, 0.01721472012),
    ("Gaussian", "trigonometric", True, 0.5531713049),
    ("Matern", "auto", False, 0.2221097892),
    ("Matern", "auto", True, 0.2221097892),
    ("Matern", "phase", True, -0.06775215166),
    ("Matern", "trigonometric", True, 0.2221097892),
    ("Polynomial", "auto", False, -0.8856210011),
    ("Polynomial", "auto", True, 1.299083535),
    ("Polynomial", "exact", True, -1.453552805),
    ("Polynomial", "complex_to_real", True, 9.023722349),
    ("Polynomial", "complex_to_real_gaussian", True, -0.5051492751),
    ("Polynomial", "gaussian_sketch", True, 0.8835382018),
    ("Polynomial", "rademacher_sketch", True, -4.25191093),
    ("Polynomial", "tensor_sketch", True, -0.8856210011),
    ("Polynomial", "tensor_srht", True, 1.299083535),
    ("ArcCosine", "auto", False, -0.1214584543),
    ("ArcCosine", "auto", True, -0.1214584543),
    ("ArcCosine", "arccosine", True, -0.1214584543),
    ("AdditiveChi2", "auto", False, 2.503649329),
    ("AdditiveChi2", "auto", True, 2.503649329),
    ("AdditiveChi2", "sampled", True, 2.503649329),
    ("SkewedChi2", "auto", False, -0.4533445885),
    ("SkewedChi2", "auto", True, -0.4533445885),
    ("SkewedChi2", "phase", True, -0.2330110201),
    ("SkewedChi2", "trigonometric", True, -0.4533445885),
    ("Tanimoto", "auto", False, -1.322135156),
    ("Tanimoto", "auto", True, -0.401839584),
    ("Tanimoto", "minwise", True, -1.322135156),
    ("Tanimoto", "consistent", True, -0.401839584),
    ("Sum", "auto", False, 2.536266349),
    ("Sum", "auto", True, 2.536266349),
    ("Sum", "phase", True, 2.476052231),
    ("Sum", "trigonometric", True, 2.536266349),
]


@pytest.mark.parametrize(("kernel", "estimator", "from_data", "wanted"), CASES)
def test_numbers(kernel, estimator, from_data, wanted):
    projection = "iid" if kernel in ("SkewedChi2", "Sum") else "orthogonal"
    m = 10 if estimator == "exact" else 12
    phi = ka.random_features(BY_NAME[kernel], 4, m, estimator, projection, ROWS if from_data else None, rng=5)
    features = phi(np.round(12 * ROWS) if isinstance(phi, ka.features.MinwiseHashing) else ROWS)
    assert np.isclose(np.sum(features * np.cos(np.arange(features.size)).reshape(features.shape)), wanted, rtol=1e-7)


def test_every_estimator_is_here():
    names = {name for kernel in KERNELS for name in ka.features.estimators(kernel)}
    assert names == set(ka.features.ESTIMATORS)
    assert {name for _, name, _, _ in CASES} >= {name for name in names if "favor" not in name}
