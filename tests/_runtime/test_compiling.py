"""What a process says of its compilation: once, before it begins, of what is compiled and not of what is loaded."""

import io
import sys
import time

import pytest

import kernattn as ka
from kernattn._runtime import compiling as _compiling
from kernattn.errors import ParameterError
from processes import run_script

FIRST = "kernattn: compiling loops for this machine"
COMPILE = "from kernattn.ops._numba.helper_threads import ready; ready()"
ALOUD = {"KERNATTN_QUIET": "0"}


class Terminal(io.StringIO):
    """What was written to a terminal."""

    def isatty(self):
        return True


@pytest.fixture
def teller(monkeypatch):
    """Of a process that said nothing yet, and may speak."""
    monkeypatch.setenv("KERNATTN_QUIET", "0")
    return _compiling._Teller()


def written(monkeypatch, kind):
    stream = kind()
    monkeypatch.setattr(sys, "stderr", stream)
    return stream


def test_a_loop_that_is_compiled_is_told_and_one_that_is_loaded_is_not(tmp_path):
    pytest.importorskip("numba")
    empty = {"NUMBA_CACHE_DIR": str(tmp_path)}
    quiet, again = run_script(COMPILE, **empty, KERNATTN_QUIET="1"), run_script(COMPILE, **empty, **ALOUD)
    assert quiet.stderr == again.stderr == ""


AFTER_A_THREAD = """
import sys, threading
from numba.core import event
from kernattn.ops._numba.helper_threads import _watch, ready

class Listener(event.Listener):
    def on_start(self, event):
        print("compiles", file=sys.stderr)

    def on_end(self, event):
        pass

event.register("numba:compile", Listener())
thread = threading.Thread(target=ready)
thread.start()
thread.join()
_watch.compile("(i8[::1], i8[::1], i4)")
"""


def test_it_is_told_once_and_first(tmp_path):
    pytest.importorskip("numba")
    first, *rest = run_script(AFTER_A_THREAD, NUMBA_CACHE_DIR=str(tmp_path), **ALOUD).stderr.splitlines()
    assert first.startswith(FIRST)
    assert "kernattn.warmup()" in first
    assert "KERNATTN_QUIET=1" in first
    assert set(rest) == {"compiles"}


def test_a_terminal_sees_a_line_that_goes_on_and_is_erased(teller, monkeypatch):
    monkeypatch.setattr(_compiling, "TICK", 0.001)
    stream = written(monkeypatch, Terminal)
    for loop in ("recur", "answer"):
        teller.place = "[#.] "
        teller.begin(loop, kept=True)
        while stream.getvalue().count(f"\rkernattn: [#.] compiling {loop}, 0 s") < 3:
            time.sleep(0.001)
        teller.end()
        assert stream.getvalue().endswith("\r\x1b[K")
    assert stream.getvalue().count(FIRST) == 1


def test_a_line_is_no_wider_than_the_terminal(teller, monkeypatch):
    monkeypatch.setattr(_compiling, "TICK", 0.001)
    monkeypatch.setattr(_compiling, "_columns", lambda: 20)
    stream = written(monkeypatch, Terminal)
    teller.begin("recur", kept=True)
    while stream.getvalue().count("\r") < 3:
        time.sleep(0.001)
    teller.end()
    _, *lines, erased = stream.getvalue().split("\r")
    assert set(lines) == {"kernattn: compiling"}
    assert erased == "\x1b[K"


def test_elsewhere_a_line_a_loop_is_for_those_who_ask(teller, monkeypatch):
    stream = written(monkeypatch, io.StringIO)
    for progress in (None, False, True):
        with teller.showing(progress):
            teller.begin("recur", kept=False)
            teller.end()
    first, second = stream.getvalue().splitlines()
    assert "set NUMBA_CACHE_DIR" in first
    assert second.startswith("kernattn: compiling recur, ")


def test_a_first_run_is_told_before_numba_is_there(teller, monkeypatch, tmp_path):
    pytest.importorskip("numba")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    stream = written(monkeypatch, io.StringIO)
    teller.expect()
    teller.expect()
    teller.begin("recur", kept=True)
    teller.end()
    assert stream.getvalue().count(FIRST) == stream.getvalue().count("\n") == 1


def test_where_loops_are_kept_nothing_is_expected(teller, monkeypatch, tmp_path):
    (tmp_path / "loops").mkdir()
    (tmp_path / "loops" / "loops.recur.nbc").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    stream = written(monkeypatch, io.StringIO)
    teller.expect()
    assert stream.getvalue() == ""


@pytest.mark.parametrize("closed", [True, False])
def test_there_may_be_no_stderr(teller, monkeypatch, closed):
    stream = written(monkeypatch, io.StringIO)
    stream.close()
    if not closed:
        monkeypatch.setattr(sys, "stderr", None)
    teller._progress = not closed
    teller._say(_compiling.KEPT)


def test_silence(teller, monkeypatch, tmp_path):
    monkeypatch.setenv("KERNATTN_QUIET", "1")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    stream = written(monkeypatch, Terminal)
    teller.expect()
    teller.begin("recur", kept=True)
    teller.end()
    assert stream.getvalue() == ""


def test_progress_is_one_of_three():
    with pytest.raises(ParameterError, match="progress must be True, False or None; got 2"):
        ka.warmup(progress=2)
