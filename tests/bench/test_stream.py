"""Moments of a file of rows, in processes of which one is killed."""

import json

import numpy as np
import pytest

pytest.importorskip("numba")

import kernattn as ka
from bench.command import run
from bench.cpu.stream import STREAM, _write, stream
from bench.cpu.stream_child import digest
from kernattn.bench import table
from kernattn.cli import main
from kernattn.cli._main import parser
from kernattn.errors import ParameterError


def test_rows_are_added_up_killed_and_resumed():
    row, other = stream(5_000, dim=4, features=8, block=500)
    assert row["same_bits"]
    assert other["same_bits"]
    assert (row["mapped"], other["mapped"]) == ("anew for each block", "once")
    assert row["rows"] == 5_000
    assert row["file_bytes"] == 4 * 4 * 5_000
    assert row["state_bytes"] == 8 * 8 * 8
    assert row["rows_per_second"] == pytest.approx(5_000 / row["seconds"])
    assert 20e6 < row["peak_bytes"] < 2e9
    assert "the same bits |" in table([row], STREAM)
    assert "**other bits** |" in table([row | {"same_bits": False}], STREAM)


def test_the_file_holds_the_rows(tmp_path):
    _write(tmp_path, 70_000, 3)
    x, y = (np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "xy")
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((70_000, 3), "f4", (70_000,), "f4")
    np.testing.assert_array_equal(y, np.sin(x[:, 0]))
    assert abs(np.std(x) - 1) < 0.01


def test_a_digest_tells_sums_apart():
    phi, x = ka.features.elu1(), np.ones((5, 2))
    first, other = (ka.solvers.moments(rows, phi, backend="reference") for rows in (x, 2 * x))
    assert digest(first) == digest(ka.solvers.moments(x, phi, backend="reference"))
    assert digest(first) != digest(other)


@pytest.mark.parametrize("words", ["--rows 10", "--stream --rows 0"])
def test_refusals(words):
    with pytest.raises(ParameterError, match=r"--rows says how many|rows must be a positive integer"):
        run(parser().parse_args(["bench", *words.split()]))


def test_the_command(monkeypatch, tmp_path, capsys):
    row = {
        "mapped": "once",
        "seconds": 1.0,
        "rows_per_second": 1.0,
        "rows_per_cpu_second": 1.0,
        "peak_bytes": 1e6,
        "flops_per_cpu_second": 1e9,
    }

    def added_up(rows, dim, features):
        sizes = {"rows": rows, "dim": dim, "features": features, "threads": 2}
        return [row | sizes | {"file_bytes": 4 * rows * dim, "state_bytes": 8e6, "same_bits": True}]

    monkeypatch.setattr("bench.cpu.stream.stream", added_up)
    assert main(["bench", "--stream", "--features", "16", "--out", str(tmp_path)]) == 0
    assert "| 10000000 | 64 | 16 | 2 | 2.56 | once |" in capsys.readouterr().out
    assert json.loads((tmp_path / "bench.json").read_text())["stream"][0]["features"] == 16
