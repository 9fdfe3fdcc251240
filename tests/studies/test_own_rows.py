"""Studies of kernels take rows of a file."""

import numpy as np
import pytest

from kernattn.errors import FileFormatError, KernattnError, ParameterError, ShapeError
from kernattn.studies import PRESETS, study
from kernattn.studies._own_rows import draw_rows, name_rows
from kernattn.studies._worker import find_sweep


@pytest.fixture
def rows(tmp_path):
    """Return a file of rows, and the rows."""
    x = np.random.default_rng(0).standard_normal((260, 3))
    np.save(tmp_path / "mine.npy", x)
    return tmp_path / "mine.npy", x


def test_rows_are_those_of_the_file(rows, tmp_path):
    path, x = rows
    drawn = draw_rows(path, 260, 1)
    np.testing.assert_array_equal(np.sort(drawn, axis=0), np.sort(x, axis=0))
    np.testing.assert_array_equal(draw_rows(path, 5, 1), drawn[:5])
    assert not np.array_equal(draw_rows(path, 5, 2), drawn[:5])
    np.savetxt(tmp_path / "mine.csv", x, delimiter=",", fmt="%.17g")
    assert name_rows(tmp_path / "mine.csv") == name_rows(path)
    np.save(path.with_name("other.npy"), -x)
    assert name_rows(path.with_name("other.npy")).split("-")[1] != name_rows(path).split("-")[1]


@pytest.mark.parametrize(("name", "axis"), [("nystrom", "rows"), ("spectral", "source")])
def test_a_study_measures_them(rows, name, axis):
    path, _ = rows
    axes = {"m": [16]}
    sweep = find_sweep(PRESETS[name].sweep, {"quick": True, "data": str(path), "axes": axes})
    assert sweep.axes[axis] == (name_rows(path),)
    cell = sweep.cells()[0]
    found = sweep.trial(cell, sweep.generator(cell, 0))
    assert all(np.isfinite(value).all() for value in found.values())
    own = find_sweep(PRESETS[name].sweep, {"quick": True, "axes": axes})
    assert found.keys() == own.trial(own.cells()[0], np.random.default_rng(0)).keys()


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, FileFormatError, "does not exist"),
        (np.zeros((3, 2)), ParameterError, "must hold rows that differ"),
        (np.eye(4), ShapeError, "must hold at least 256 rows for this study; got 4"),
        (np.where(np.eye(300) > 0, np.nan, 0.0), ParameterError, "must hold finite numbers; row 0 has others"),
    ],
)
def test_a_file_of_other_rows_is_refused_before_any_work(tmp_path, content, error, message):
    if content is not None:
        np.save(tmp_path / "bad.npy", content)
    with pytest.raises(error, match=message):
        study("nystrom", tmp_path / "out", quick=True, data=tmp_path / "bad.npy")
    assert not (tmp_path / "out").exists()


def test_a_study_without_rows_says_which_have_them(tmp_path):
    with pytest.raises(KernattnError, match="the study tails takes no data, as attention, spectral, nystrom, mechan"):
        study("tails", tmp_path, data="mine.npy")
