"""Exact fits of flights: what their process says, and the table of it."""

import json

import numpy as np
import pytest

pytest.importorskip("numba")

from bench.cpu import exact_child
from bench.cpu.exact import EXACT, exact
from kernattn.bench import table
from kernattn.studies import Table

X = np.random.default_rng(0).uniform(-1, 1, (250, 2))
TABLE = Table(X, 9 * np.sin(3 * X[:, 0]), ("a", "b"), np.array([True, False]), "minutes", {})


@pytest.fixture
def said(monkeypatch, capsys):
    """Return the rows of a run in this process, of fewer flights."""

    def run(words, **_):
        exact_child.run(json.loads(words[-1]))
        return type("Done", (), {"stdout": capsys.readouterr().out})

    monkeypatch.setattr("bench.cpu.exact.subprocess.run", run)
    monkeypatch.setattr("bench.cpu.exact_child.flights", lambda: TABLE)
    monkeypatch.setattr("bench.cpu.exact_child.NEW", 50)
    return exact(200)


def test_rows_and_their_table(said):
    first, last = said
    assert first["tolerance"] > last["tolerance"] >= last["residual"]
    assert last["beyond"] == 0
    assert last["peak_bytes"] > 10**7
    part = TABLE.split(200, 50, rng=0)
    w = np.linalg.solve(exact_child.KERNEL(part.x) + exact_child.PENALTY * np.eye(200), part.y)
    error = exact_child.KERNEL(part.new_x, part.x) @ w - part.new_y
    np.testing.assert_allclose(last["squared_error"], np.mean(error**2), rtol=1e-4)
    assert table(said, EXACT).count("\n") == 3
