"""Arrays of 16 bits: sums in their own format, formats that files do not name, and numbers beside them."""

import io

import numpy as np
import pytest
from numpy.testing import assert_allclose

import kernattn as ka
from kernattn.errors import DTypeError

ml_dtypes = pytest.importorskip("ml_dtypes")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
UNITS = {np.dtype(np.float16): 2.0**-11, BFLOAT16: 2.0**-8}  # half the gap between 1 and the next number


def normal(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.mark.parametrize("dtype", UNITS, ids=str)
def test_divergence_over_many_keys(dtype):
    """tensorflow/tensorflow#115731: sums of bfloat16 stayed in it. So did those of attention_kl: 24% off."""
    scores = normal(3, 4000)
    weights = [
        np.exp(x) / np.sum(np.exp(x), axis=-1, keepdims=True) for x in (scores, scores + normal(3, 4000, seed=1))
    ]
    estimate, exact = (x.astype(dtype) for x in weights)
    found = ka.metrics.attention_kl(estimate, exact)
    assert found.dtype == dtype
    wanted = ka.metrics.attention_kl(estimate.astype(np.float64), exact.astype(np.float64))
    assert_allclose(found.astype(np.float64), wanted, rtol=1.1 * UNITS[dtype])


@pytest.mark.parametrize("dtype", UNITS, ids=str)
def test_quantiles_have_one_dtype(dtype):
    """jax-ml/ml_dtypes#189: with NumPy 2 a number times bfloat16 is float32. Quantiles were, but not their ends."""
    samples = (300 + 5 * normal(60, 3)).astype(dtype)
    value, low, high = ka.metrics.quantile_and_ci(samples, 0.9, confidence=0.9)
    assert value.dtype == low.dtype == high.dtype == dtype
    wanted = np.quantile(samples.astype(np.float64), 0.9, axis=0)
    assert_allclose(value.astype(np.float64), wanted, rtol=1.1 * UNITS[dtype])


def test_bfloat16_that_numpy_saved():
    """jax-ml/ml_dtypes#41: files of NumPy forget bfloat16, and load its bits. The refusal did not say what they are."""
    file = io.BytesIO()
    np.save(file, normal(4, 3).astype(BFLOAT16))
    file.seek(0)
    rows = np.load(file)
    with pytest.raises(DTypeError, match=r"got \|V2: numpy.load gives bfloat16 as its bits, whose .view"):
        ka.kernels.Gaussian()(rows)
    assert_allclose(np.diagonal(ka.kernels.Gaussian()(rows.view(BFLOAT16))).astype(np.float32), 1)


def made(sklearn, name):
    return getattr(sklearn, name)() if name == "ExactKernelRidge" else getattr(sklearn, name)(random_state=0)


@pytest.mark.parametrize("dtype", UNITS, ids=str)
@pytest.mark.parametrize("name", ["FeatureRidge", "ExactKernelRidge", "FeatureClassifier"])
def test_fits_of_large_numbers(name, dtype):
    """scikit-learn/scikit-learn#13007: sums of float16 overflowed; jax-ml/jax#11014: NumPy could not place bfloat16.

    Targets of bfloat16 were refused by scikit-learn's check of them, with an error about its own code.
    """
    sklearn = pytest.importorskip("kernattn.sklearn")
    rows = (300 + 20 * normal(40, 3)).astype(dtype)
    numbers = rows[:, 0].astype(np.float64) + 20 * normal(40, seed=1)
    numbers = ((numbers > 300) if name == "FeatureClassifier" else numbers).astype(dtype)
    wide = rows.astype(np.float64), numbers.astype(np.float64)
    found, wanted = (made(sklearn, name).fit(*x).predict(wide[0]) for x in ((rows, numbers), wide))
    assert_allclose(np.asarray(found, np.float64), np.asarray(wanted, np.float64), rtol=1e-6)


def test_frequencies_keep_their_digits_beside_rows_in_bfloat16():
    """huggingface/transformers#25681: casting a model rounded its frequencies too. One in float32 takes 16-bit rows."""
    torch = pytest.importorskip("torch")
    kt = pytest.importorskip("kernattn.torch")
    module = kt.FavorAttention(ka.kernels.Softmax(), 64, 64, seed=0)
    rows = torch.tensor(normal(1, 1, 32, 64), dtype=torch.float32)
    rows = (22 * rows / rows.norm(dim=-1, keepdim=True)).bfloat16()  # so long that rounded frequencies cost digits
    out, exact = module(rows, rows, rows), module(*3 * (rows.float(),))
    assert out.dtype == torch.bfloat16
    assert (out.float() - exact).abs().max() <= 1.1 * UNITS[BFLOAT16] * exact.abs().max()
