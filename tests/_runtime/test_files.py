"""Files are written whole or not at all."""

import os
import subprocess
import sys

import pytest

from kernattn._runtime.files import _cleared, lock, replace_bytes, replace_text, replacing


def test_readers_see_the_old_file_or_the_new_one(tmp_path):
    path = tmp_path / "a.txt"
    replace_text(path, "old")
    with replacing(path) as file:
        file.write(b"ne")
        assert path.read_text() == "old"
        file.write(b"w")
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def interrupted(path, failure):
    with replacing(path) as file:
        file.write(b"half of a ")
        raise failure


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file_and_nothing_else(failure, tmp_path):
    path = tmp_path / "a.txt"
    replace_bytes(path, b"old")
    with pytest.raises(failure):
        interrupted(path, failure)
    assert path.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


STUCK = """
import sys, time
from pathlib import Path
from kernattn._runtime.files import replacing

with replacing(Path(sys.argv[1])) as file:
    file.write(b"half of a ")
    file.flush()
    print("written", flush=True)
    time.sleep(600)
"""


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL")
def test_a_kill_leaves_the_old_file_and_what_was_written_beside_it_for_an_hour(tmp_path):
    path = tmp_path / "a.txt"
    replace_bytes(path, b"old")
    with subprocess.Popen([sys.executable, "-c", STUCK, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"written\n"
        process.kill()
    (left,) = tmp_path.glob(".kernattn-*.tmp")
    assert left.read_bytes() == b"half of a "
    assert path.read_bytes() == b"old"
    replace_bytes(path, b"new")
    assert path.read_bytes() == b"new"
    assert {p.name for p in tmp_path.iterdir()} == {"a.txt", left.name}
    os.utime(left, (0, 0))
    with left.open("rb") as writer:
        assert lock(writer.fileno())
        _cleared.clear()
        replace_bytes(path, b"newer")
        assert left.exists()  # for somebody holds it
    _cleared.clear()
    young = tmp_path / ".kernattn-0.tmp"
    young.touch()
    replace_bytes(path, b"newest")
    assert {p.name for p in tmp_path.iterdir()} == {"a.txt", young.name}


@pytest.mark.skipif(os.name != "posix", reason="modes")
def test_a_new_file_is_as_open_as_any_other(tmp_path):
    replace_bytes(tmp_path / "ours", b"")
    (tmp_path / "any").write_bytes(b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "any").stat().st_mode


def test_a_name_as_long_as_the_system_allows(tmp_path):
    replace_bytes(tmp_path / ("n" * 255), b"x")
    assert (tmp_path / ("n" * 255)).read_bytes() == b"x"
