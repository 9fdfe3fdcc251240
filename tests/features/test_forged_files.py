"""Files that someone forged: refused by one error that says what is wrong, or a map that works."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import forge
import kernattn as ka
import saved
from covering import turns
from kernattn.features._files import known_types
from refusals import refused

SAVED = Path(__file__).parent / "saved_by_0_1"
FEW, MANY = 5, 15  # forgeries of a kind: the fuzzer tries them all
DEEP = ("tensor_sketch", "tensor_srht", "hadamard", "nystrom", "favor_sharp_asymmetric", "multiple")


@pytest.mark.parametrize("name", saved.MAKERS)
def test_files_of_0_1_load(name):
    phi = ka.load(SAVED / f"{name}.npz")
    with np.load(SAVED / "expected.npz") as expected:
        np.testing.assert_allclose(phi.query(forge.inputs(name)), expected[name], rtol=1e-10, atol=1e-12)
    made = saved.make(name)
    assert type(phi) is type(made)
    np.testing.assert_allclose(
        phi.redraw(3).query(forge.inputs(name)), made.redraw(3).query(forge.inputs(name)), rtol=1e-10
    )


def test_every_type_is_tried():
    def named(record):
        if isinstance(record, dict):
            yield from [record["type"]] if "type" in record else []
            record = list(record.values())
        for item in record if isinstance(record, list) else []:
            yield from named(item)

    found = {each for name in saved.MAKERS for each in named(forge.unpacked(SAVED / f"{name}.npz")[0])}
    assert found == set(known_types())


@pytest.mark.parametrize(("name", "kind"), turns(saved.MAKERS, forge.KINDS))
def test_forgeries(name, kind, tmp_path):
    forgeries = list(forge.KINDS[kind](*forge.unpacked(SAVED / f"{name}.npz")))
    chosen = np.random.default_rng(len(name)).permutation(len(forgeries))[: MANY if name in DEEP else FEW]
    x, path = forge.inputs(name), tmp_path / "map.npz"
    ka.load(SAVED / f"{name}.npz")  # what is imported at first is no cost of a forgery
    wrong = {what: forge.verdict(path, make, x) for what, make in (forgeries[i] for i in chosen)}
    assert not {what: each for what, each in wrong.items() if each is not None}


def test_a_moved_bucket_is_refused(tmp_path):
    header, arrays = forge.unpacked(SAVED / "tensor_sketch.npz")
    for name, array in arrays.items():
        if array.dtype == np.int64:
            (tmp_path / "map.npz").write_bytes(forge.packed(header, arrays | {name: array + 9}))
    with refused(ka.errors.FileFormatError, "map.npz", "index", "buckets"):
        ka.load(tmp_path / "map.npz")


BOMBS = """
import resource, sys
import kernattn as ka
room = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
for path in sys.argv[1:]:
    try:
        ka.load(path)
    except ka.errors.FileFormatError:
        continue
    raise SystemExit(f"{path} was loaded")
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - room
assert grown < 100e6, grown
"""


def test_bombs_take_no_memory(tmp_path):
    forgeries = forge.of_zips(*forge.unpacked(SAVED / "positive.npz"))
    bombs = [make for what, make in forgeries if "bomb" in what or "huge" in what or "many" in what]
    for i, make in enumerate(bombs):
        (tmp_path / f"{i}.npz").write_bytes(make())
    paths = [str(tmp_path / f"{i}.npz") for i in range(len(bombs))]
    warm = "import kernattn as ka; ka.load"
    assert len(bombs) > 10
    subprocess.run([sys.executable, "-c", f"{warm}\n{BOMBS}", *paths], check=True, timeout=600)


@pytest.mark.parametrize("path", [None, 3, "", b"map.npz", "a\0b", ["map.npz"]])
def test_paths_that_name_nothing(path):
    with refused(ka.errors.ParameterError, "path must be the name of a file"):
        ka.load(path)
    with refused(ka.errors.ParameterError, "path must be the name of a file"):
        ka.features.elu1().save(path)


def test_places_that_hold_no_file(tmp_path):
    with refused(ka.errors.FileFormatError, tmp_path.name, "directory"):
        ka.load(tmp_path)
    with refused(ka.errors.ParameterError, tmp_path.name, "directory"):
        ka.features.elu1().save(tmp_path)
    with refused(FileNotFoundError, "nowhere"):
        ka.features.elu1().save(tmp_path / "nowhere" / "map.npz")
    with pytest.raises(FileNotFoundError):
        ka.load(tmp_path / "nothing.npz")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_pipes_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with refused(ka.errors.FileFormatError, "pipe", "not a file"):
        ka.load(tmp_path / "pipe")


def test_maps_inside_of_maps_have_a_bound(tmp_path):
    phi = ka.features.elu1()
    for _ in range(40):
        phi = 2.0 * phi
    with refused(ka.errors.ParameterError, "deep"):
        phi.save(tmp_path / "map.npz")
