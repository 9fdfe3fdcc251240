"""A study that is killed goes on where it was: no row lost, none doubled, every number the same."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from dataclasses import replace

import pytest

from kernattn.errors import FileFormatError
from kernattn.studies import StudyConflict, _records, attention_study, preset, read_records
from kernattn.studies._fields import fault
from kernattn.studies._measure import TIMINGS
from kernattn.studies._records import Records

pytestmark = pytest.mark.usefixtures("no_figures")


def untimed(folder):
    """Lines of the records without what a clock said."""
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return [json.dumps({key: value for key, value in record.items() if key not in TIMINGS}) for record in records]


STUCK = """
import sys, time
from kernattn.cli import main
from kernattn.studies import _attention

def measure(*args, really=_attention.measure, cells=[]):
    cells.append(args)
    return really(*args) if len(cells) < 8 else time.sleep(600)

_attention.measure = measure
main(sys.argv[1:])
"""  # the command, stuck in its eighth cell


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_kill_and_resume(tmp_path, tokens_file, small):
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    words = ["study", "attention", "--data", tokens_file, "--out", killed, "--draws", "16", "--m", "4", "16"]
    with subprocess.Popen([sys.executable, "-c", STUCK, *map(str, words)], stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 120
        rows = killed / "records.jsonl"
        while not (rows.exists() and rows.read_bytes().count(b"\n") == 7):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
    left = rows.read_bytes()
    attention_study(killed, small, tokens_file)
    attention_study(whole, small, tokens_file)
    assert len(untimed(whole)) == 20
    assert untimed(killed) == untimed(whole)
    assert rows.read_bytes().startswith(left)
    assert not list(killed.glob(".*.tmp"))


@pytest.mark.parametrize("torn", ["inside", "newline", "after", "empty", "gone"])
def test_torn_last_line(tmp_path, tokens_file, small, torn):
    attention_study(tmp_path, small, tokens_file)
    path = tmp_path / "records.jsonl"
    whole, expected = path.read_bytes(), untimed(tmp_path)
    keep = whole.rfind(b"\n", 0, -1) + 1  # without the last line
    cut = {"inside": keep + 40, "newline": len(whole) - 1, "after": keep, "empty": 0}.get(torn)
    if cut is None:
        path.unlink()
    else:
        path.write_bytes(whole[:cut])
    records = attention_study(tmp_path, small, tokens_file)
    assert untimed(tmp_path) == expected
    assert records == read_records(tmp_path)
    if cut:
        assert path.read_bytes()[:keep] == whole[:keep]


def test_finished_study_is_left_alone(tmp_path, tokens_file, small, monkeypatch):
    first = attention_study(tmp_path, small, tokens_file)
    before = (tmp_path / "records.jsonl").read_bytes()
    monkeypatch.setattr("kernattn.studies._attention.measure", None)
    assert attention_study(tmp_path, small, tokens_file) == first
    assert (tmp_path / "records.jsonl").read_bytes() == before


def test_order_changes_nothing(tmp_path, tokens_file):
    there = preset(sources=(), scales=(1.0,), num_features=(4, 8), draws=6, estimators=("positive", "phase"))
    back = preset(sources=(), scales=(1.0,), num_features=(8, 4), draws=6, estimators=("phase", "positive"))
    for name, settings in (("there", there), ("back", back)):
        attention_study(tmp_path / name, settings, tokens_file)
    assert sorted(untimed(tmp_path / "there")) == sorted(untimed(tmp_path / "back"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "seed was 0, is 1"),
        ({"draws": 17}, "draws was 16, is 17"),
        ({"num_features": (4, 8)}, r"num_features was \[4, 16\], is \[4, 8\]"),
        ({"scales": (2.0,)}, r"tokens\.mine@2 was absent"),
    ],
)
def test_other_settings_are_refused(tmp_path, tokens_file, small, change, message):
    attention_study(tmp_path, replace(small, estimators=("positive",)), tokens_file)
    before = (tmp_path / "records.jsonl").read_bytes()
    with pytest.raises(StudyConflict, match=message):
        attention_study(tmp_path, replace(small, estimators=("positive",), **change), tokens_file)
    assert (tmp_path / "records.jsonl").read_bytes() == before


def test_folder_has_one_writer(tmp_path):
    pytest.importorskip("fcntl")
    with Records(tmp_path, {}, {}), pytest.raises(StudyConflict, match="another process"):
        Records(tmp_path, {}, {})
    with Records(tmp_path, {}, {}) as records:
        records.append({"cell": "a"})
        with pytest.raises(StudyConflict, match="cell a"):
            records.append({"cell": "a"})


GOOD = b'{"cell": "a"}\n', b'{"cell": "b"}\n'


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b"nonsense\n", "line 2 is not a record"),
        (b"\n", "line 2 is not a record"),
        (b"3\n", "line 2 is not a record"),
        (b'{"cell": 3}\n', "line 2 is not a record"),
        (b'{"cell": "c", "x": NaN}\n', "line 2 is not a record"),
        (b'{"cell": "c\n', "line 2 is not a record"),
        (b"[" * 100_000 + b"\n", "line 2 is not a record"),
        (b"\xff\xfe\n", "line 2 is not a record"),
        (b'{"cell": "a", "other": 1}\n', "line 2 repeats the cell a"),
        (b'{"cell": "c", "fault": 1}\n', "line 2 is faulty"),
    ],
    ids=lambda value: value.decode("latin-1")[:20] if isinstance(value, bytes) else value,
)
def test_bad_lines_are_moved_aside(tmp_path, bad, message):
    """Once and for all: with the next start they are gone, and a line added by hand is judged again."""
    with Records(tmp_path, {}, {}):
        pass
    path, rejected = tmp_path / "records.jsonl", tmp_path / "records.rejected.jsonl"
    for times in (1, 2):
        path.write_bytes(GOOD[0] + bad + GOOD[1] + b'{"cell": "to')
        with (
            pytest.warns(UserWarning, match=f"{message}; moved to records.rejected.jsonl"),
            faulty(tmp_path) as records,
        ):
            assert list(records.done) == ["a", "b"]
        assert path.read_bytes() == b"".join(GOOD)
        assert rejected.read_bytes() == times * bad
    with faulty(tmp_path) as records:
        assert list(records.done) == ["a", "b"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["config.json", "records.jsonl", "records.rejected.jsonl"]


def faulty(folder):
    return Records(folder, {}, {}, lambda record: "is faulty" if "fault" in record else None)


def test_bad_lines_are_left_out_by_a_reader(tmp_path):
    content = GOOD[0] + b"nonsense\n" + GOOD[1] + GOOD[0]
    (tmp_path / "records.jsonl").write_bytes(content)
    with pytest.warns(UserWarning, match="line 2 is not a record; line 4 repeats the cell a; left out"):
        assert read_records(tmp_path) == [{"cell": "a"}, {"cell": "b"}]
    assert (tmp_path / "records.jsonl").read_bytes() == content


def test_no_good_row_is_lost_when_moving_fails(tmp_path, monkeypatch):
    """The bad lines are on the disk before they leave the records."""
    with Records(tmp_path, {}, {}):
        pass
    path = tmp_path / "records.jsonl"
    content = GOOD[0] + b"nonsense\n" + GOOD[1]
    path.write_bytes(content)
    for failing in ("records.rejected.jsonl", "records.jsonl"):

        def full(path, content, failing=failing, really=_records.replace_bytes):
            if path.name == failing:
                raise OSError("the disk is full")
            really(path, content)

        with monkeypatch.context() as patch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            patch.setattr(_records, "replace_bytes", full)
            with pytest.raises(OSError, match="full"):
                Records(tmp_path, {}, {})
        assert path.read_bytes() == content


def test_damaged_cells_run_again(tmp_path, tokens_file, small):
    """A study goes on whatever was done to fields of its records, and ends with the numbers it had."""
    one = replace(small, estimators=("positive",), projections=("iid",), num_features=(4, 16))
    attention_study(tmp_path, one, tokens_file)
    path, expected = tmp_path / "records.jsonl", untimed(tmp_path)
    first, second = path.read_bytes().splitlines(keepends=True)
    record = json.loads(first)
    assert fault(record) is None
    for field in record.keys() - {"tokens"}:
        for value in ("gone", "wrong", 10**400, True, [], {}):
            changed = {key: value if key == field else old for key, old in record.items()}
            if value == "gone":
                del changed[field]
            assert fault(changed) is not None, (field, value)
    dropped = {key: value for key, value in record.items() if key != "bias"}
    path.write_bytes(json.dumps(dropped).encode() + b"\n" + second)
    with pytest.warns(UserWarning, match="line 1 has other fields than a record: bias; moved"):
        attention_study(tmp_path, one, tokens_file)
    assert sorted(untimed(tmp_path)) == sorted(expected)
    assert path.read_bytes().startswith(second)


def test_genuine_records_have_no_fault(tmp_path, tokens_file, small):
    """With and without a closed form, entries that settle and rows for the delta method."""
    for record in attention_study(tmp_path, small, tokens_file):
        assert fault(record) is None


def test_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "records.jsonl").write_text("")
    with pytest.raises(StudyConflict, match=r"without its config\.json"):
        Records(tmp_path, {}, {})
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(FileFormatError, match=r"config\.json"):
        Records(tmp_path, {}, {})
