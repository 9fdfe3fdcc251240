"""Records on the disk: the same bytes whatever was killed, and however many worked; no good row is ever lost."""

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import suppress
from itertools import count

import numpy as np
import pytest

import dice
from kernattn.errors import FileFormatError, ParameterError
from kernattn.studies import StudyConflict, TrialFailed, _records, read_records, run
from kernattn.studies._records import Records, seal


def drop_times(folder):
    """Lines of the records without what a clock said."""
    records = [json.loads(line) for line in (folder / "records.jsonl").read_bytes().splitlines()]
    return [json.dumps({key: value for key, value in record.items() if key != "seconds"}) for record in records]


FACES = list(range(2, 14))
KILLED = """
import sys
from kernattn.studies import run
run("dice:cast", sys.argv[1], workers=int(sys.argv[2]), settings={"faces": list(map(int, sys.argv[3:]))})
"""


def killed_while_running(folder, workers):
    """Kill the study, with no word to its workers, when it has one more record; False if it had ended."""
    rows = folder / "records.jsonl"  # of cells so slow that a busy machine does not end them before the kill
    before = rows.read_bytes().count(b"\n") if rows.exists() else 0
    words = [sys.executable, "-c", KILLED, str(folder), str(workers), *map(str, FACES)]
    with subprocess.Popen(words, env=os.environ | {"DICE_SECONDS": "0.05"}) as process:
        while process.poll() is None and not (rows.exists() and rows.read_bytes().count(b"\n") > before):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    return process.returncode != 0


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
@pytest.mark.parametrize(
    ("times", "counts"), [(2, (2, 1)), pytest.param(30, (2, 1), marks=pytest.mark.slow)], ids=["twice", "30 times"]
)
def test_kills_and_workers_change_no_byte(tmp_path, times, counts):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for i in range(times):
        assert killed_while_running(cut, counts[i % 2]) or i > 20
    run("dice:cast", cut, workers=2, settings={"faces": FACES})
    run("dice:cast", whole, workers=1, settings={"faces": FACES})
    assert len(drop_times(whole)) == 48
    assert drop_times(cut) == drop_times(whole)
    assert {json.loads(line)["threads"] for line in drop_times(cut)} == {"1"}
    assert (cut / "config.json").read_bytes() == (whole / "config.json").read_bytes()
    assert sorted(path.name for path in cut.iterdir()) == ["config.json", "records.jsonl"]


def test_a_sweep_of_a_module_is_found_by_workers(tmp_path):
    here, there = run(dice.sweep, tmp_path / "here"), run(dice.sweep, tmp_path / "there", workers=1)
    assert [record["ordered"] for record in here] == [record["ordered"] for record in there]


def test_a_worker_that_dies_is_named_and_costs_its_cell_only(tmp_path, monkeypatch):
    (tmp_path / "deadly.py").write_text(
        "import os, dice\n"
        "from dataclasses import replace\n"
        "def trial(cell, rng):\n"
        "    return os._exit(3) if (cell['faces'], cell['how']) == (20, 'right') else dice.trial(cell, rng)\n"
        "sweep = replace(dice.sweep, trial=trial)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        TrialFailed, match=r"cell faces = 20, how = 'right', dice = 3, .*: its process ended with status 3"
    ):
        run("deadly:sweep", tmp_path / "out", workers=1)
    assert len(read_records(tmp_path / "out")) == 6
    assert len(run(dice.sweep, tmp_path / "out")) == 8


def test_studies_grow_and_shrink(tmp_path, monkeypatch):
    grown, direct = tmp_path / "grown", tmp_path / "direct"
    small = run(dice.cast(dice=(5,)), grown)
    big = run(dice.cast(dice=(3, 5)), grown)
    assert [record for record in big if record["dice"] == 5] == small
    run(dice.cast(dice=(3, 5)), direct)
    assert drop_times(grown) == drop_times(direct)
    monkeypatch.setattr("kernattn.studies._run.measure", None)  # nothing is measured twice
    assert run(dice.cast(dice=(5,)), grown) == small == read_records(grown)
    assert len((grown / "records.spare.jsonl").read_bytes().splitlines()) == 4
    assert run(dice.cast(dice=(3, 5)), grown) == big
    assert (grown / "records.spare.jsonl").read_bytes() == b""


@pytest.mark.parametrize("step", [1, 2, 3])
@pytest.mark.parametrize(("before", "after"), [((3, 5), (5,)), ((5,), (3, 5))])
def test_no_row_is_lost_where_growing_or_shrinking_stops(tmp_path, monkeypatch, before, after, step):
    run(dice.cast(dice=(3, 5)), tmp_path)
    run(dice.cast(dice=before), tmp_path)
    calls, replace = count(1), _records.replace_bytes

    def stopped(path, content):
        if next(calls) == step:
            raise OSError(28, "No space left on device")
        replace(path, content)

    with monkeypatch.context() as patch:
        patch.setattr("kernattn.studies._records.replace_bytes", stopped)
        with suppress(OSError):
            run(dice.cast(dice=after), tmp_path)
    monkeypatch.setattr("kernattn.studies._run.measure", None)  # nothing is measured twice
    assert len(run(dice.cast(dice=(3, 5)), tmp_path)) == 8


def test_a_disk_that_fills_leaves_the_folder_unlocked(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("kernattn.studies._records.os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            run(dice.sweep, tmp_path)
    assert len(run(dice.sweep, tmp_path)) == 8


@pytest.mark.parametrize("torn", ["inside", "newline", "after", "empty", "gone"])
def test_torn_last_line(tmp_path, torn):
    run(dice.sweep, tmp_path)
    path = tmp_path / "records.jsonl"
    whole, expected = path.read_bytes(), drop_times(tmp_path)
    keep = whole.rfind(b"\n", 0, -1) + 1  # without the last line
    cut = {"inside": keep + 40, "newline": len(whole) - 1, "after": keep, "empty": 0}.get(torn)
    if cut is None:
        path.unlink()
    else:
        path.write_bytes(whole[:cut])
    records = run(dice.sweep, tmp_path)
    assert drop_times(tmp_path) == expected
    assert records == read_records(tmp_path)
    if cut:
        assert path.read_bytes()[:keep] == whole[:keep]


def test_a_last_line_that_lost_its_newline_only_is_a_record(tmp_path):
    run(dice.sweep, tmp_path)
    path = tmp_path / "records.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert len(read_records(tmp_path)) == 8
    run(dice.sweep, tmp_path)
    assert path.read_bytes() == whole


BAD = {
    b"nonsense\n": "is not a record",
    b"\n": "is not a record",
    b"3\n": "is not a record",
    b'{"cell": 3}\n': "is not a record",
    b'{"cell": "c", "x": NaN}\n': "is not a record",
    b"[" * 100_000 + b"\n": "is not a record",
    b"\xff\xfe\n": "is not a record",
    b'{"cell": "c", "x": 1}\n': "was changed after it was written",
    json.dumps(seal({"cell": "c"})).encode()[:-1] + b', "seconds": 1e999}\n': "was changed after it was written",
}


@pytest.mark.parametrize(
    ("bad", "reason"), BAD.items(), ids=lambda value: value[:12] if isinstance(value, bytes) else ""
)
def test_bad_lines_are_moved_aside(tmp_path, bad, reason):
    run(dice.sweep, tmp_path)
    path, rejected = tmp_path / "records.jsonl", tmp_path / "records.rejected.jsonl"
    good = path.read_bytes()
    first, rest = good.split(b"\n", 1)
    for times in (1, 2):
        path.write_bytes(first + b"\n" + bad + rest + b'{"cell": "to')
        with pytest.warns(UserWarning, match=f"line 2 {reason}; left out"):
            assert len(read_records(tmp_path)) == 8
        with pytest.warns(UserWarning, match=f"line 2 {reason}; moved to records.rejected.jsonl"):
            assert len(run(dice.sweep, tmp_path)) == 8
        assert path.read_bytes() == good
        assert rejected.read_bytes() == times * bad
    run(dice.sweep, tmp_path)


def test_a_field_that_was_changed_is_measured_again(tmp_path):
    run(dice.sweep, tmp_path)
    path, expected = tmp_path / "records.jsonl", drop_times(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    record = json.loads(lines[2])
    for name in record:
        changed = record | {name: "x"}
        path.write_bytes(b"".join([*lines[:2], json.dumps(changed).encode() + b"\n", *lines[3:]]))
        with pytest.warns(UserWarning, match="line 3 was changed after it was written"):
            run(dice.sweep, tmp_path)
        assert drop_times(tmp_path) == expected
    again = json.dumps(record | {"seconds": 1e9}).encode() + b"\n"  # what a clock says is not checked
    path.write_bytes(b"".join([*lines[:2], again, *lines[3:]]))
    assert run(dice.sweep, tmp_path)[2]["seconds"] == 1e9


def test_no_good_row_is_lost_when_moving_fails(tmp_path, monkeypatch):
    """The bad lines are on the disk before they leave the records."""
    run(dice.sweep, tmp_path)
    path = tmp_path / "records.jsonl"
    content = b"nonsense\n" + path.read_bytes()
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
                run(dice.sweep, tmp_path)
        assert path.read_bytes() == content


def test_a_folder_has_one_writer_and_one_study(tmp_path):
    pytest.importorskip("fcntl")
    with Records(tmp_path, {"study": "a"}, ["c"]) as records:
        with pytest.raises(StudyConflict, match="another process"):
            run(dice.sweep, tmp_path)
        records.append({"cell": "c"})
        with pytest.raises(StudyConflict, match="cell c"):
            records.append({"cell": "c"})
    with pytest.raises(StudyConflict, match="holds the study a, not dice"):
        run(dice.sweep, tmp_path)


def test_folders_that_are_no_studies_are_refused(tmp_path):
    with pytest.raises(FileFormatError, match="holds no study"):
        read_records(tmp_path)
    (tmp_path / "records.jsonl").write_text("")
    with pytest.raises(FileFormatError, match=r"without its config\.json"):
        run(dice.sweep, tmp_path)
    for content, message in (
        ("[]", "is not the configuration"),
        ("[" * 100_000, "is not the configuration"),
        ('{"settings": {"study": "attention"}}', "kernattn 0.1"),
    ):
        (tmp_path / "config.json").write_text(content)
        for call in (lambda: run(dice.sweep, tmp_path), lambda: read_records(tmp_path)):
            with pytest.raises(FileFormatError, match=message):
                call()


def test_what_cannot_be_written_to_shows_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("kernattn.studies._run.measure", None)
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(ParameterError, match=r"file.* cannot be written to: "):
            run(dice.sweep, out)

    def read_only(path, content):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(_records, "replace_text", read_only)
    with pytest.raises(ParameterError, match="out cannot be written to: Permission denied"):
        run(dice.sweep, tmp_path / "out")


def test_numbers_are_json(tmp_path):
    sweep = dice.Sweep("s", {"a": (1,)}, lambda cell, rng: {"x": [np.inf, rng.random()]}, along={"i": (0, 1)})
    (record,) = run(sweep, tmp_path)
    assert record["x"][0] is record["x_high"][0] is None
    assert record["x"][1] == float(f"{record['x'][1]:.8g}")
