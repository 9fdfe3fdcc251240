"""Eigenvectors that are products of reflections and of those of three diagonals."""

import numpy as np
import pytest

from kernattn.solvers._eigenbasis import eigenbasis, tridiagonal


def symmetric(size, kind):
    rng = np.random.default_rng(size)
    rows = rng.standard_normal((2 * size, size))
    if kind == "of low rank":
        rows = rows[:, : max(1, size // 3)] @ rng.standard_normal((max(1, size // 3), size))
    return np.eye(size) if kind == "one" else rows.T @ rows


@pytest.mark.parametrize("unit", [1e-250, 1.0, 1e250])
@pytest.mark.parametrize("kind", ["full", "of low rank", "one"])
@pytest.mark.parametrize("size", [1, 2, 3, 40, 200])
def test_eigenvectors(size, kind, unit):
    matrix = symmetric(size, kind)
    found = eigenbasis(unit * matrix)
    values, vectors = found.values / unit, found.vectors(size)
    bound = 100 * size * np.finfo(float).eps
    assert np.all(np.diff(values) <= 0)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix)[::-1], rtol=0, atol=bound * values[0])
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(size), atol=bound)
    np.testing.assert_allclose((vectors * values) @ vectors.T, matrix, atol=bound * values[0])
    b = np.random.default_rng(0).standard_normal((size, 3))
    np.testing.assert_allclose(found.coordinates(b), vectors.T @ b, atol=bound)
    np.testing.assert_allclose(found.combine(b), vectors @ b, atol=bound)
    np.testing.assert_array_equal(found.vectors(1).shape, (size, 1))
    assert found.coordinates(np.zeros((size, 0))).shape == (size, 0)


@pytest.mark.parametrize("unit", [1e-250, 1.0, 1e250])
@pytest.mark.parametrize("kind", ["full", "of low rank", "one"])
@pytest.mark.parametrize("size", [1, 2, 40])
def test_solutions_by_three_diagonals(size, kind, unit):
    matrix, b = symmetric(size, kind), np.random.default_rng(0).standard_normal((size, 3))
    found = tridiagonal(unit * matrix)
    most = np.linalg.eigvalsh(matrix)[-1]
    assert found.largest == pytest.approx(unit * most, rel=1e-13)
    assert found.largest <= found.bound * (1 + 1e-13) <= 3.01 * found.largest
    penalties = most * np.array([10.0, 1e-2, 1e-16])  # of low rank, the last is less than rounding
    solved = found.solve(found.turn(b), unit * penalties)
    assert solved.shape == (size, 3, 3)
    logs = found.solve_and_measure(found.turn(b), unit * penalties)[1]
    shifted = np.linalg.eigvalsh(matrix)[:, None] + penalties[:2]
    np.testing.assert_allclose(logs[:2], np.log(shifted).sum(axis=0) + size * np.log(unit), rtol=1e-9, atol=1e-9 * size)
    for i, penalty in enumerate(penalties[:2]):
        wanted = np.linalg.solve(matrix + penalty * np.eye(size), b)
        np.testing.assert_allclose(
            unit * found.turn(solved[:, i], back=True), wanted, atol=1e-10 * np.abs(wanted).max()
        )
    assert np.isfinite(solved).all()
