"""Archives: arrays by the names, dtypes and shapes that a room expects, and an error for everything else."""

import numpy as np
import pytest

from kernattn._runtime.archive import open_archive, save_archive
from kernattn.errors import FileFormatError, ParameterError

A = np.arange(6.0).reshape(2, 3)


def take(path, *array, kind="kernattn test 1", **options):
    with open_archive(path, kind) as archive:
        return archive.header, archive.array(*array, **options)


@pytest.fixture
def path(tmp_path):
    save_archive(tmp_path / "a.npz", "kernattn test 1", {"n": 2}, {"a": A})
    return tmp_path / "a.npz"


@pytest.mark.parametrize("shape", [None, (2, 3), (None, 3), (2, None)])
def test_arrays_come_back(shape, path):
    header, a = take(path, "a", ("float64",), shape)
    assert header == {"n": 2}
    np.testing.assert_array_equal(a, A)


@pytest.mark.parametrize("shape", [(2,), (3,), (2, 3, 1), (3, 2), (None,), ()])
def test_shapes_that_differ(shape, path):
    with pytest.raises(FileFormatError, match=r"a\.npz: a must be finite numbers"):
        take(path, "a", shape=shape)


def test_what_an_archive_does_not_hold(path):
    with pytest.raises(FileFormatError, match="a must be an array of float32"):
        take(path, "a", ("float32",))
    with pytest.raises(FileFormatError, match="it has no member 'b'"):
        take(path, "b")
    with pytest.raises(FileFormatError, match="not of the format 'kernattn test 2'"):
        take(path, "a", kind="kernattn test 2")
    with (
        pytest.raises(FileFormatError, match="its description does not name: a"),
        open_archive(path, "kernattn test 1"),
    ):
        pass
    save_archive(path, "kernattn test 1", {}, {"a": np.where(A > 1, A, np.inf)})
    with pytest.raises(FileFormatError, match="got others"):
        take(path, "a", shape=(2, 3))
    save_archive(path, "kernattn test 1", {"x": np.nan}, {"a": A})
    with pytest.raises(FileFormatError, match="NaN, which is no finite number"):
        take(path, "a")


def test_a_description_has_a_bound(path):
    with pytest.raises(ParameterError, match="cannot be saved"):
        save_archive(path, "kernattn test 1", "x" * (1 << 20), {})
    assert take(path, "a")[0] == {"n": 2}  # the old file stays


def test_a_text_file_is_told_how_rows_are_read(tmp_path):
    (tmp_path / "rows.csv").write_text("1,2\n", encoding="utf-8")
    with pytest.raises(FileFormatError, match="rows of a table are read by `kernattn features`"):
        take(tmp_path / "rows.csv", "a", ("float64",))
