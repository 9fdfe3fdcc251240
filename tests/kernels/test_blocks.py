"""A kernel matrix does not hang on the blocks of rows in which it is computed."""

from __future__ import annotations

from typing import Any

import array_api_strict
import numpy as np
import pytest

import kernattn as ka

KERNELS = [
    ka.kernels.Gaussian(0.7) + ka.kernels.Gaussian([1.0, 2.0, 0.5]),
    ka.kernels.Laplacian([1.0, 2.0, 0.5]) * ka.kernels.Cauchy(),
    ka.kernels.Laplacian(),
    ka.kernels.Matern(nu=0.5) + ka.kernels.Polynomial(5),
    ka.kernels.ArcCosine(1) + ka.kernels.Softmax(),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("xp", [np, array_api_strict], ids=["numpy", "strict"])
@pytest.mark.parametrize("lead", [(), (2,)])
def test_blocks(kernel: ka.kernels.Kernel, xp: Any, lead: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((*lead, 7, 3)), rng.standard_normal((5, 3))
    x[..., 2, :] *= 1e200  # a far row
    matrices = []
    for size in (10, 2**18):
        monkeypatch.setattr("kernattn.kernels._pairwise.BLOCK", size)
        matrices.append(np.asarray(kernel(xp.asarray(x), xp.asarray(y))))
    np.testing.assert_allclose(matrices[0], matrices[1], rtol=1e-13)
    np.testing.assert_allclose(matrices[0][..., 3, 1], kernel.pairs(x[..., 3, :], y[1]), rtol=1e-12)


def test_y_that_comes_in_between_is_not_taken_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernattn.kernels._pairwise.BLOCK", 8)
    x, y = np.random.default_rng(1).standard_normal((2, 40, 2))
    many = [ka.kernels.Gaussian(0.5 + 0.1 * i) for i in range(20)]  # more than are kept
    total = ka.kernels.Sum(tuple(many))(x, y)
    np.testing.assert_allclose(total, sum(kernel(x, y) for kernel in many), rtol=1e-12)


@pytest.mark.parametrize("kernel", [ka.kernels.Gaussian(), ka.kernels.Matern(nu=1.5), ka.kernels.Laplacian()], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_matrices_are_symmetric_to_the_last_bit(
    kernel: ka.kernels.Kernel, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernattn.kernels._pairwise.BLOCK", 900)
    x = np.random.default_rng(2).standard_normal((60, 5)).astype(dtype)
    for matrix in (kernel(x), kernel(x, x.copy())):
        np.testing.assert_array_equal(matrix, matrix.T)


@pytest.mark.parametrize("xp", [np, array_api_strict], ids=["numpy", "strict"])
@pytest.mark.parametrize(("offset", "other"), [(0.0, 1e7), (0.0, -1e15), (1e4, np.nan), (1e4, np.inf)])
def test_one_row_far_from_all_others_is_not_what_they_are_compared_by(xp: Any, offset: float, other: float) -> None:
    x, y = (offset + np.random.default_rng(3).standard_normal((2, 9, 3))).astype(np.float32)
    kernel, clean = ka.kernels.Gaussian(), np.arange(9) != 4
    y[4, 1] = other
    matrix = np.asarray(kernel(xp.asarray(x), xp.asarray(y)))
    direct = kernel.pairs(x[:, None, :], y[None, :, :])
    np.testing.assert_allclose(matrix[:, clean], direct[:, clean], rtol=1e-5, atol=1e-7)
