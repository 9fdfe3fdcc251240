"""Studies of kernels take rows of a file."""

import numpy as np
import pytest

from kernattn.cli import main
from kernattn.errors import FileFormatError, KernattnError, ParameterError, ShapeError
from kernattn.studies import PRESETS, study
from kernattn.studies._own_rows import own_rows, read_targets
from kernattn.studies._presets.learned import _cut_own
from kernattn.studies._tokens import own_tokens
from kernattn.studies._worker import find_sweep


@pytest.fixture
def rows(tmp_path):
    """Return a file of rows, and the rows."""
    x = np.random.default_rng(0).standard_normal((260, 3))
    np.save(tmp_path / "mine.npy", x)
    return tmp_path / "mine.npy", x


def test_rows_are_those_of_the_file(rows, tmp_path):
    path, x = rows
    own = own_rows(path)
    drawn = own.draw(260, 1)
    np.testing.assert_array_equal(np.sort(drawn, axis=0), np.sort(x, axis=0))
    np.testing.assert_array_equal(own.draw(5, 1), drawn[:5])
    assert not np.array_equal(own.draw(5, 2), drawn[:5])
    np.savetxt(tmp_path / "mine.csv", x, delimiter=",", fmt="%.17g")
    assert own_rows(tmp_path / "mine.csv").name == own_rows(path).name
    np.save(path.with_name("other.npy"), -x)
    assert own_rows(path.with_name("other.npy")).name.split("-")[1] != own_rows(path).name.split("-")[1]


def test_errors_say_what_a_study_takes(tmp_path):
    """Not what `transform_file` takes, whose source has a member beside it."""
    np.savez(tmp_path / "two.npz", a=np.eye(3), b=np.eye(3))
    with pytest.raises(ParameterError, match=r"two.npz holds the arrays a, b: save one alone$"):
        own_rows(tmp_path / "two.npz")
    with pytest.raises(ParameterError, match=r"data must be a file of .npy, .*; got '.*rows.txt'$"):
        own_rows(tmp_path / "rows.txt")


@pytest.mark.parametrize(
    ("name", "axis"), [("nystrom", "rows"), ("spectral", "source"), ("polynomial-sketch", "inputs")]
)
def test_a_study_measures_them(rows, name, axis):
    path, _ = rows
    axes = {"m": [16]}
    sweep = find_sweep(PRESETS[name].sweep, {"quick": True, "data": str(path), "axes": axes})
    assert sweep.axes[axis] == (own_rows(path).name,)
    cell = sweep.cells()[0]
    found = sweep.trial(cell, sweep.generator(cell, 0))
    assert all(np.isfinite(value).all() for value in found.values())
    own = find_sweep(PRESETS[name].sweep, {"quick": True, "axes": axes})
    assert found.keys() == own.trial(own.cells()[0], np.random.default_rng(0)).keys()


def test_a_file_that_changes_between_studies_is_read_again_and_during_one_is_not(rows):
    """A name of one content beside numbers of another would be a wrong record."""
    path, x = rows
    settings = {"quick": True, "data": str(path), "axes": {"m": [16]}}
    sweeps, found = [], []
    for content in (x, x**3):
        np.save(path, content)
        sweeps.append(find_sweep(PRESETS["nystrom"].sweep, settings))
    for sweep in sweeps:
        cell = sweep.cells()[0]
        found.append(sweep.trial(cell, sweep.generator(cell, 0)))
    assert sweeps[0].axes["rows"] != sweeps[1].axes["rows"]
    assert all(np.all(found[0][name] != found[1][name]) for name in found[0])


def test_a_name_that_leads_nowhere(tmp_path):
    (tmp_path / "loop.npy").symlink_to(tmp_path / "loop.npy")
    for path in (tmp_path / "loop.npy", tmp_path / f"{300 * 'x'}.npy", tmp_path / f"{300 * 'x'}.csv"):
        with pytest.raises(FileFormatError, match="cannot be read"):
            own_rows(path)


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


TOKENS = ("attention-error", "redraw", "estimators", "learned", "time-to-error")


@pytest.mark.parametrize("name", TOKENS)
def test_a_study_of_attention_takes_rows_as_queries_keys_and_values(rows, tmp_path, name):
    path, x = rows
    np.savez(tmp_path / "mine.npz", q=x, k=x, v=x)
    np.savez(tmp_path / "other.npz", q=x, k=x, v=-x)
    files = (path, tmp_path / "mine.npz", tmp_path / "other.npz")
    sweeps = [find_sweep(PRESETS[name].sweep, {"quick": True, "data": str(file)}) for file in files]
    first, second, third = ([cell.name for cell in each.cells()] for each in sweeps)
    assert first == second
    assert not set(first) & set(third)
    if name in ("redraw", "estimators"):  # the others run compiled loops
        cell = sweeps[0].cells()[0]
        found, again = (each.trial(cell, each.generator(cell, 0)) for each in sweeps[:2])
        for field, value in found.items():
            assert np.isfinite(value).all()
            np.testing.assert_array_equal(value, again[field])


def test_rows_that_a_fit_saw_do_not_judge_it(rows):
    tokens = own_tokens(rows[0], 2**31, 0)
    fitted, judged = _cut_own(tokens, "mine", 130, 3)
    assert len(fitted[0]) == len(judged[0]) == 130
    np.testing.assert_array_equal(np.sort(np.concatenate([fitted[0], judged[0]]), axis=0), np.sort(rows[1], axis=0))


@pytest.mark.parametrize("packed", [False, True])
def test_regression_learns_the_last_column_or_y(tmp_path, packed):
    x = np.random.default_rng(1).standard_normal((80, 3))
    path = tmp_path / f"mine.{'npz' if packed else 'csv'}"
    if packed:
        np.savez(path, x=x[:, :2], y=x[:, 2])
    else:
        np.savetxt(path, x, delimiter=",", fmt="%.17g")
    found = read_targets(path)
    np.testing.assert_array_equal(found.x, x[:, :2])
    np.testing.assert_array_equal(found.y, x[:, 2:])
    sweep = find_sweep(PRESETS["regression"].sweep, {"quick": True, "data": str(path)})
    assert sweep.axes["data"] == (found.name,)
    cell = sweep.cells()[0]
    assert np.isfinite(sweep.trial(cell, sweep.generator(cell, 0))["error"]).all()


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.eye(80), np.ones(80), "rows that differ; all are alike"),
        (np.eye(80), np.eye(80), r"must hold x \(n, d\) and y \(n,\); got shapes \(80, 80\) and \(80, 80\)"),
        (np.eye(80), np.arange(79), r"got shapes \(80, 80\) and \(79, 1\)"),
        (np.eye(63), np.arange(63), "at least 64 rows for this study; got 63"),
        (np.eye(80).astype(str), np.arange(80), "x has shape .* and dtype <U"),
    ],
)
def test_targets_that_cannot_be_learnt_are_refused(tmp_path, x, y, message):
    np.savez(tmp_path / "mine.npz", x=x, y=y)
    with pytest.raises(KernattnError, match=message):
        study("regression", tmp_path / "out", quick=True, data=tmp_path / "mine.npz")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", [name for name, preset in PRESETS.items() if not preset.data])
def test_a_study_whose_inputs_are_no_rows_says_which_have_them(tmp_path, capsys, name):
    assert main(["study", name, "--data", "mine.npy", "--out", str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err
    assert f"the study {name} takes no data, for it measures {PRESETS[name].made}; attention, " in said
    assert "spectral, polynomial-sketch, nystrom, regression" in said
    assert not (tmp_path / "out").exists()


def test_every_study_takes_data_or_says_what_it_measures_at():
    assert all(bool(preset.data) != bool(preset.made) for preset in PRESETS.values())
