"""Features of files: every form, the bytes of a run that was never killed, what is refused."""

import os
import signal
import subprocess
import sys
from zipfile import ZipFile

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors
from kernattn._runtime.files import lock
from kernattn.features import _transform_file

ROWS, D, M = 103, 3, 8
PHI = ka.random_features(ka.kernels.Gaussian(), D, M, rng=3)


@pytest.fixture
def x():
    return np.random.default_rng(0).standard_normal((ROWS, D))


def read(path):
    if path.suffix == ".npy":
        return np.load(path)
    if path.suffix == ".npz":
        return np.load(path)["features"]
    return np.loadtxt(path, delimiter="," if path.suffix == ".csv" else "\t")


def write(path, x, header=""):
    if path.suffix == ".npy":
        np.save(path, x)
    elif path.suffix == ".npz":
        np.savez(path, x=x)
    else:
        delimiter = "," if path.suffix == ".csv" else "\t"
        np.savetxt(path, x, "%.17g", delimiter, header=header.replace(",", delimiter), comments="")
    return path


@pytest.mark.parametrize("out", ["out.npy", "out.npz", "out.csv", "out.tsv"])
@pytest.mark.parametrize("source", ["in.npy", "in.npz", "in.csv", "in.tsv", "in.NPY"])
def test_features_of_every_form(source, out, x, tmp_path):
    path = tmp_path / source
    if source == "in.NPY":
        path.write_bytes(write(tmp_path / "other.npy", np.asfortranarray(x)).read_bytes())
    else:
        write(path, x, "a,b,c")
    assert ka.features.transform_file(path, tmp_path / out, PHI, block=10) == ROWS
    np.testing.assert_allclose(read(tmp_path / out), PHI(x), rtol=0, atol=1e-15)
    assert not list(tmp_path.glob("*.partial*"))


@pytest.mark.parametrize("given", ["float32", ">f4", "float64", "float16", "int32"])
@pytest.mark.parametrize("asked", [None, "float32", "float64"])
def test_dtypes(given, asked, x, tmp_path):
    rows = (3 * x).astype(given)
    ka.features.transform_file(write(tmp_path / "in.npy", rows), tmp_path / "out.npy", PHI, dtype=asked)
    got, wanted = np.load(tmp_path / "out.npy"), asked or ("float32" if given in ("float32", ">f4") else "float64")
    assert got.dtype == wanted
    np.testing.assert_array_equal(got, PHI(rows.astype(wanted)))


def test_a_member_of_several(x, tmp_path):
    np.savez(tmp_path / "in.npz", one=x, two=-x)
    ka.features.transform_file(tmp_path / "in.npz", tmp_path / "out.npy", PHI, member="two")
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), PHI(-x))
    for member, message in ((None, "one, two"), ("three", "got 'three'")):
        with pytest.raises(errors.ParameterError, match=message):
            ka.features.transform_file(tmp_path / "in.npz", tmp_path / "new.npy", PHI, member=member)


KILLED = """
import os, signal, sys
import kernattn as ka
from kernattn.features import _transform_file as module

append = module._Work.append
def dies(self, file, features, every):
    append(self, file, features, 0.0 if self.done < 60 else 1e9)
    if self.done > 80:
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
module._Work.append = dies
ka.features.transform_file(ka.load(sys.argv[1]), sys.argv[2], sys.argv[3], block=10)
"""


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL")
@pytest.mark.parametrize(
    "source", ["in.csv", *(pytest.param(name, marks=pytest.mark.slow) for name in ("in.npy", "in.npz"))]
)
def test_a_killed_run_goes_on_to_the_same_bytes(source, x, tmp_path, monkeypatch):
    path, out = write(tmp_path / source, x), tmp_path / "out.npy"
    PHI.save(tmp_path / "map.npz")
    words = [sys.executable, "-c", KILLED, *map(str, (tmp_path / "map.npz", path, out))]
    assert subprocess.run(words, check=False).returncode == -signal.SIGKILL
    assert not out.exists()
    monkeypatch.setattr(type(PHI), "__call__", counted := Counted(type(PHI).__call__))
    ka.features.transform_file(path, out, PHI, block=10)
    assert counted.rows == ROWS - 60  # 60 were on the disk; those written after that are made again
    ka.features.transform_file(path, tmp_path / "whole.npy", PHI, block=10)
    assert out.read_bytes() == (tmp_path / "whole.npy").read_bytes()


class Counted:
    def __init__(self, call):
        self.call, self.rows = call, 0

    def __get__(self, phi, owner):
        def call(x, **how):
            self.rows += len(x)
            return self.call(phi, x, **how)

        return call


def stopped(tmp_path, x):
    """A source, and an output of which 100 rows are done: the last one is no number."""
    path = tmp_path / "in.npy"
    bad = x.copy()
    bad[-1] = np.nan
    np.save(path, bad)
    with pytest.raises(errors.ParameterError, match="NaN or infinity in row 102"):
        ka.features.transform_file(path, tmp_path / "out.npy", PHI, block=10, every=1e-9)
    return path


def test_what_was_done_is_of_one_map_and_one_source(x, tmp_path):
    path = stopped(tmp_path, x)
    learnt = ka.with_numbers(PHI, omega=2 * PHI.spec.omega)
    for phi, how in ((PHI.redraw(1), {}), (learnt, {}), (PHI, {"block": 20}), (PHI, {"dtype": "float32"})):
        with pytest.raises(errors.StateMismatchError, match=r"out\.npy\.partial holds features of another"):
            ka.features.transform_file(path, tmp_path / "out.npy", phi, **{"block": 10, **how})
    np.save(path, x)
    with pytest.raises(errors.StateMismatchError, match="another map, source"):
        ka.features.transform_file(path, tmp_path / "out.npy", PHI, block=10)
    (tmp_path / "out.npy.partial").unlink()
    ka.features.transform_file(path, tmp_path / "out.npy", PHI, block=10)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy")[-1:], PHI(x[-1:]))


def test_a_damaged_record_is_named(x, tmp_path):
    path = stopped(tmp_path, x)
    for content in (b"{", b"[]", b'{"done": "7"}', b'{"a":' * 100_000):
        (tmp_path / "out.npy.partial.json").write_bytes(content)
        with pytest.raises(errors.KernattnError, match="to begin anew"):
            ka.features.transform_file(path, tmp_path / "out.npy", PHI, block=10)


def test_what_lies_behind_the_rows_that_are_done_is_cut_off(x, tmp_path):
    path, out = write(tmp_path / "in.npy", x), tmp_path / "out.npy"
    ka.features.transform_file(path, tmp_path / "whole.npy", PHI, block=10)
    (tmp_path / "out.npy.partial").write_bytes(bytes(10 * ROWS * M * 8))
    ka.features.transform_file(path, out, PHI, block=10)
    assert out.read_bytes() == (tmp_path / "whole.npy").read_bytes()


def test_a_source_that_changes_is_refused(x, tmp_path, monkeypatch):
    path, out, computed = write(tmp_path / "in.npy", x), tmp_path / "out.npy", _transform_file._compute

    def changing(*given):
        for features in computed(*given):
            os.utime(path, (0, 0))
            yield features

    monkeypatch.setattr(_transform_file, "_compute", changing)
    with pytest.raises(errors.StateMismatchError, match="changed while it was read"):
        ka.features.transform_file(path, out, PHI, block=10)
    assert not out.exists()


def test_two_do_not_write_one_file(x, tmp_path):
    path = stopped(tmp_path, x)
    with (tmp_path / "out.npy.partial").open("r+b") as other:
        assert lock(other.fileno())
        with pytest.raises(errors.StateMismatchError, match="another process is writing"):
            ka.features.transform_file(path, tmp_path / "out.npy", PHI, block=10)


def test_one_that_comes_when_another_ends_leaves_its_file(x, tmp_path, monkeypatch):
    path, out = write(tmp_path / "in.npy", x), tmp_path / "out.npy"

    def late(descriptor):
        monkeypatch.undo()
        ka.features.transform_file(path, out, PHI)  # the other process, between the opening of the file and its lock
        return lock(descriptor)

    monkeypatch.setattr(_transform_file, "lock", late)
    with pytest.raises(errors.StateMismatchError, match="another process is writing"):
        ka.features.transform_file(path, out, PHI, block=10)
    np.testing.assert_array_equal(np.load(out), PHI(x))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["in.npy", "out.npy"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("1,2,3\n4,5\n", "row 1 of .* has 2 columns, not 3"),
        ("a,b,c\n1,2,3\n4,,6\n", "row 1 of .* holds '' in column 1"),
        ("1,2,3\n4,5,six\n", "row 1 of .* holds 'six' in column 2"),
        ("1,2,3\nnan,0,0\n", "NaN or infinity in row 1"),
        ("a,b,c\n", "holds none"),
        ("", "holds none"),
        ("1,2\n", "d = 3 columns; .* has 2"),
        ("NA,2,3\n4,5,6\n", "row 0 of .* holds 'NA' in column 0"),  # no header: it would be lost without a word
        ("1,2,3\n1_000,5,6\n", "row 1 of .* holds '1_000' in column 0"),
        ("1,2,3\n\u0661,5,6\n", "row 1 of .* holds '\u0661' in column 0"),
        (b"gr\xf6\xdfe,b,c\n1,2,3\n", "damaged or not a .csv file"),
    ],
)
def test_text_that_is_refused(content, message, tmp_path):
    (tmp_path / "in.csv").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(errors.KernattnError, match=message):
        ka.features.transform_file(tmp_path / "in.csv", tmp_path / "out.npy", PHI)
    assert not (tmp_path / "out.npy").exists()


def test_a_header_in_quotes_may_hold_delimiters(tmp_path):
    (tmp_path / "in.csv").write_text('"a, of b",c,d\n1,2,3\n')
    assert ka.features.transform_file(tmp_path / "in.csv", tmp_path / "out.npy", PHI) == 1
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), PHI(np.array([[1.0, 2.0, 3.0]])))


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, 3)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (True, 3)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (10**9, 3)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000, 3)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (1, 3)",
    ],
)
def test_forged_headers_are_refused(header, suffix, tmp_path):
    content = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(240)
    path = tmp_path / f"in{suffix}"
    if suffix == ".npy":
        path.write_bytes(content)
    else:
        with ZipFile(path, "w") as archive:
            archive.writestr("x.npy", content)
    with pytest.raises(errors.FileFormatError):
        ka.features.transform_file(path, tmp_path / "out.npy", PHI)
    assert list(tmp_path.iterdir()) == [path]


def test_a_damaged_stream_is_a_format_error(x, tmp_path):
    path = tmp_path / "in.npz"
    np.savez_compressed(path, x=x)
    content = bytearray(path.read_bytes())
    content[400:420] = bytes(20)
    path.write_bytes(content)
    with pytest.raises(errors.FileFormatError, match="damaged"):
        ka.features.transform_file(path, tmp_path / "out.npy", PHI)


def test_numbers_beyond_the_dtype_are_named(x, tmp_path):
    x[7] *= 1e39
    with pytest.raises(errors.ParameterError, match="finite in float32; NaN or infinity in row 7"):
        ka.features.transform_file(write(tmp_path / "in.npy", x), tmp_path / "out.npy", PHI, dtype="float32")


def test_text_keeps_every_bit(x, tmp_path):
    ka.features.transform_file(write(tmp_path / "in.npy", x), tmp_path / "out.csv", PHI)
    np.testing.assert_array_equal(read(tmp_path / "out.csv"), PHI(x))


def test_archives_hold_no_time_of_day(x, tmp_path):
    path = write(tmp_path / "in.npy", x)
    for out in ("one.npz", "two.npz"):
        ka.features.transform_file(path, tmp_path / out, PHI)
        os.utime(path, (0, path.stat().st_mtime + 100))
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    with ZipFile(tmp_path / "one.npz") as archive:
        assert archive.infolist()[0].date_time == (1980, 1, 1, 0, 0, 0)


def test_a_record_without_its_rows_counts_none(x, tmp_path):
    path = stopped(tmp_path, x)
    partial = tmp_path / "out.npy.partial"
    with partial.open("r+b") as file:
        file.truncate(1000)
    with pytest.raises(errors.FileFormatError, match="fewer rows"):
        ka.features.transform_file(path, tmp_path / "out.npy", PHI, block=10)
    partial.unlink()
    with pytest.raises(errors.ParameterError, match="row 102"):
        ka.features.transform_file(path, tmp_path / "out.npy", PHI, block=10, every=1e9)
    assert not (tmp_path / "out.npy.partial.json").exists()  # it spoke of rows that are gone


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones(3), r"shape \(3,\)"),
        (np.ones((0, 3)), r"shape \(0, 3\)"),
        (np.ones((2, 3), complex), "holds complex128"),
        (np.array([["a"] * 3]), "holds <U1"),
    ],
)
def test_arrays_that_are_refused(array, message, tmp_path):
    with pytest.raises(errors.KernattnError, match=message):
        ka.features.transform_file(write(tmp_path / "in.npy", array), tmp_path / "out.npy", PHI)
    assert len(list(tmp_path.iterdir())) == 1


def test_arguments_that_are_refused(x, tmp_path):
    path = write(tmp_path / "in.npy", x)
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(errors.ParameterError, match=r"source must be a file; .* is a directory"):
        ka.features.transform_file(tmp_path / "folder.npy", tmp_path / "out.npy", PHI)
    with pytest.raises(errors.ParameterError, match="got the directory"):
        ka.features.transform_file(path, tmp_path / "folder.npy", PHI)
    for out, message in (("out.txt", r"\.npy, \.npz, \.csv, \.tsv"), ("in.npy", "another file than source")):
        with pytest.raises(errors.ParameterError, match=message):
            ka.features.transform_file(path, tmp_path / out, PHI)
    with pytest.raises(FileNotFoundError, match="no directory"):
        ka.features.transform_file(path, tmp_path / "none" / "out.npy", PHI)
    for how in ({"block": 0}, {"every": 0}, {"dtype": "float16"}, {"member": "x"}):
        with pytest.raises(errors.ParameterError):
            ka.features.transform_file(path, tmp_path / "out.npy", PHI, **how)
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(errors.FileFormatError, match="ends too soon"):
        ka.features.transform_file(path, tmp_path / "out.npy", PHI)
    path.write_bytes(b"no array")
    with pytest.raises(errors.FileFormatError, match="damaged"):
        ka.features.transform_file(path, tmp_path / "out.npy", PHI)
