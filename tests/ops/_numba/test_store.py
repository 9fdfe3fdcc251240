"""What is kept of a loop: whoever wrote last, and whatever a disk did to it, a later process gets its own loop."""

import numpy as np
import pytest

pytest.importorskip("numba")

import kernattn.ops._numba.codegen.store
from kernattn.ops._numba.codegen.compile import compiled
from kernattn.ops._numba.codegen.store import SIZE, Store

SINGLE, DOUBLE = np.arange(4, dtype=np.float32), np.arange(4, dtype=np.float64)


def total(x):
    s = 0.0
    for i in range(x.size):
        s += x[i]
    return s


def hits(loop):
    return sum(loop.stats.cache_hits.values())


@pytest.fixture
def files():
    """Those of a loop for two dtypes, that a process left; and no other's."""
    compiled(total)._cache.flush()
    store = compiled(total)._cache._cache_file
    yield lambda: sorted(store._folder.glob(f"{store._name}.*.nbc"))
    store.flush()
    assert store._folder.is_dir()


def test_a_later_process_loads_every_signature(files):
    loop = compiled(total)
    assert loop(SINGLE) == loop(DOUBLE) == 6
    assert len(files()) == 2
    later = compiled(total)
    assert later(DOUBLE) == later(SINGLE) == 6
    assert hits(later) == 2


def test_processes_that_compile_two_dtypes_at_once_do_not_mix_them_up(files, monkeypatch):
    late = []
    with monkeypatch.context() as patch:
        patch.setattr(kernattn.ops._numba.codegen.store, "replace_bytes", lambda *written: late.append(written))
        assert compiled(total)(DOUBLE) == 6
    assert compiled(total)(SINGLE) == 6
    for path, content in late:
        path.write_bytes(content)
    later = compiled(total)
    assert later(DOUBLE) == later(SINGLE) == 6
    assert hits(later) == 2


@pytest.mark.parametrize(
    "damage",
    [lambda kept: b"", lambda kept: kept[: SIZE // 2], lambda kept: kept[:-1], lambda kept: kept[:-1] + b"\0\0", bytes],
    ids=["empty", "begun", "cut", "other", "whole"],
)
def test_a_damaged_file_is_as_good_as_none(damage, files):
    assert compiled(total)(DOUBLE) == 6
    (file,) = files()
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    later = compiled(total)
    assert later(DOUBLE) == 6
    assert hits(later) == (damage is bytes)
    again = compiled(total)
    assert again(DOUBLE) == 6
    assert hits(again) == 1, "the file was not written anew"


def test_a_disk_that_refuses_keeps_nothing_and_stops_nobody(files, monkeypatch):
    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kernattn.ops._numba.codegen.store, "replace_bytes", full)
    assert compiled(total)(DOUBLE) == 6
    assert files() == []


def test_what_was_made_of_other_sources_or_for_another_key_is_not_read(tmp_path):
    Store(str(tmp_path), "loop", "old").save(("f4",), 1)
    assert Store(str(tmp_path), "loop", "old").load(("f4",)) == 1
    assert Store(str(tmp_path), "loop", "new").load(("f4",)) is None
    assert Store(str(tmp_path), "loop", "old").load(("f8",)) is None
    (file,) = tmp_path.iterdir()
    file.rename(Store(str(tmp_path), "loop", "old")._path(("f8",)))
    assert Store(str(tmp_path), "loop", "old").load(("f8",)) is None


@pytest.mark.parametrize("code", [b"cno_such_module\nthing\n.", b"cmath\nno_such_thing\n."], ids=["module", "name"])
def test_code_that_names_what_this_process_has_not_is_as_good_as_nothing(code, tmp_path):
    """A loop that was compiled beside a function of someone's own names its module, which another process may lack."""
    store = Store(str(tmp_path), "total", "stamp")
    store._path("key").write_bytes(store._hash("key", code) + code)
    assert store.load("key") is None
