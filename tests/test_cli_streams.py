"""The command line where streams are closed, or lack the letters of what is printed."""

import io
import sys

import numpy as np
import pytest

import kernattn as ka
from kernattn.cli import main


class Ascii(io.TextIOWrapper):
    """A stream of a machine that knows no letters but those of ASCII."""

    def __init__(self):
        super().__init__(io.BytesIO(), encoding="ascii")


def closed():
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [None, closed()], ids=["none", "closed"])
@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_a_stream_may_be_closed(name, stream, monkeypatch):
    monkeypatch.setattr(sys, name, stream)
    assert main(["info"]) == 0
    assert main(["report", "nowhere"]) == 2
    with pytest.raises(SystemExit) as exit_:
        main(["nonsense"])
    assert exit_.value.code == 2
    assert getattr(sys, name) is stream


@pytest.mark.parametrize("progress", [None, True])
@pytest.mark.parametrize("stream", [None, closed()], ids=["none", "closed"])
def test_there_is_no_bar_without_stderr(stream, progress, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    assert ka.solvers.accumulate([np.ones((9, 2))], ka.features.elu1(), progress=progress).n == 9


def test_letters_that_stdout_lacks_are_escaped(monkeypatch):
    stream = Ascii()
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(SystemExit) as exit_:
        main(["study", "spectral", "--help"])
    assert exit_.value.code == 0
    stream.flush()
    assert rb"\u0394" in stream.buffer.getvalue()  # a capital delta
    assert stream.errors == "strict"


def test_an_argument_of_two_lines_is_refused_in_one(capsys):
    with pytest.raises(SystemExit):
        main(["study", "tails", "--nonsense\n1"])
    assert capsys.readouterr().err.count("\n") == 1


def test_more_than_memory_is_one_line(capsys, monkeypatch):
    def too_much():
        raise MemoryError("Unable to allocate 7 TiB")

    monkeypatch.setattr("kernattn._environment.describe", too_much)
    assert main(["info"]) == 2
    assert capsys.readouterr().err == "kernattn: error: Unable to allocate 7 TiB\n"
