"""Streams of blocks: their sums, and runs that are killed and resumed to the same bits."""

import os
import signal
import subprocess
import sys
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import pytest

import kernattn as ka
from kernattn.errors import DTypeError, EmptyInputError, ParameterError, ShapeError, StateMismatchError
from kernattn.solvers._files import Place, store
from solvers.test_moments import PHI, W, X, Y, assert_same

CUTS = [0, 20, 21, 50, 80, 90]
BLOCKS = [(X[a:b], Y[a:b], W[a:b]) for a, b in pairwise(CUTS)]


class Killed(Exception):
    pass


def until(count, blocks=BLOCKS):
    yield from blocks[:count]
    raise Killed


def test_blocks_are_the_rows():
    whole = ka.solvers.moments(X, PHI, y=Y, weights=W)
    assert_same(ka.solvers.accumulate(iter(BLOCKS), PHI), whole)
    assert_same(ka.solvers.accumulate([X[:9], (X[9:],)], PHI), ka.solvers.moments(X, PHI))
    assert_same(ka.solvers.accumulate([(X[:9], Y[:9]), (X[9:], Y[9:])], PHI), ka.solvers.moments(X, PHI, y=Y))


@pytest.mark.parametrize("killed", range(1, 6))
def test_resumed_to_the_same_bits(tmp_path, killed):
    path, whole = tmp_path / "c.npz", ka.solvers.accumulate(BLOCKS, PHI)
    with pytest.raises(Killed):
        ka.solvers.accumulate(until(killed), PHI, checkpoint=path, every=1e-9)
    assert_same(ka.solvers.load_moments(path, PHI), ka.solvers.accumulate(BLOCKS[:killed], PHI), exact=True)
    assert_same(ka.solvers.accumulate(BLOCKS, PHI, checkpoint=path), whole, exact=True)
    assert_same(ka.solvers.accumulate(BLOCKS, PHI, checkpoint=path), whole, exact=True)
    assert [each.name for each in tmp_path.iterdir()] == ["c.npz"]


def test_between_checkpoints_nothing_is_kept(tmp_path):
    path = tmp_path / "c.npz"
    with pytest.raises(Killed):
        ka.solvers.accumulate(until(4), PHI, checkpoint=path, every=1e9)
    assert not path.exists()
    assert_same(ka.solvers.accumulate(BLOCKS, PHI, checkpoint=path), ka.solvers.accumulate(BLOCKS, PHI), exact=True)
    assert ka.solvers.load_moments(path, PHI).n == np.count_nonzero(W)


def test_blocks_may_come_in_one_buffer(tmp_path):
    """It is written over when the next block is asked for, and after the last one."""

    def reused(count=9):
        buffer = np.empty((10, 3))
        for i in range(count):
            buffer[:] = X[10 * i : 10 * i + 10]
            yield buffer
        buffer[:] = np.nan

    path, whole = tmp_path / "c.npz", ka.solvers.accumulate(reused(), PHI)
    ka.solvers.accumulate(reused(4), PHI, checkpoint=path)
    for _ in range(2):
        assert_same(ka.solvers.accumulate(reused(), PHI, checkpoint=path), whole, exact=True)


def test_older_checkpoints_know_the_last_block_alone(tmp_path):
    path, total = tmp_path / "c.npz", ka.solvers.accumulate(BLOCKS[:3], PHI)
    digest = blake2b(digest_size=16)
    for part in BLOCKS[2]:
        part = part.astype("f8")
        digest.update(f"{part.dtype}{part.shape}".encode() + part.tobytes())
    store(total, Place(3, CUTS[3], digest.hexdigest(), "float64"), path)
    assert_same(ka.solvers.accumulate(BLOCKS, PHI, checkpoint=path), ka.solvers.accumulate(BLOCKS, PHI), exact=True)
    store(total, Place(3, CUTS[3], digest.hexdigest(), "float64"), path)
    with pytest.raises(StateMismatchError, match="those given are others"):
        ka.solvers.accumulate([*BLOCKS[:2], (X[21:50] + 1, *BLOCKS[2][1:])], PHI, checkpoint=path)


SCRIPT = """
import sys, time
import numpy as np, kernattn as ka
x = np.random.default_rng(0).standard_normal((400, 3))
def blocks():
    for i in range(0, 400, 10):
        yield x[i : i + 10], x[i : i + 10, 0]
        print(i, flush=True)
        time.sleep(float(sys.argv[2]))
phi = ka.random_features(ka.kernels.Gaussian(), 3, 12, rng=0)
m = ka.solvers.accumulate(phi, blocks(), checkpoint=sys.argv[1], every=1e-9, backend="reference")
print(m.gram.tobytes().hex() + m.cross.tobytes().hex())
"""


def test_killed_outright(tmp_path):
    def run(path, wait):
        command = [sys.executable, "-c", SCRIPT, str(tmp_path / path), str(wait)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    with run("a.npz", 0.05) as process:
        for line in process.stdout:
            if line.strip() == "70":
                os.kill(process.pid, signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    last = []
    for path in ("a.npz", "b.npz"):
        with run(path, 0) as process:
            last.append(process.stdout.read().split()[-1])
    assert last[0] == last[1]


def test_other_streams_are_refused(tmp_path):
    path = tmp_path / "c.npz"
    with pytest.raises(Killed):
        ka.solvers.accumulate(until(3), PHI, checkpoint=path, every=1e-9)
    others = {
        "those given are others": [BLOCKS[1], BLOCKS[0], *BLOCKS[2:4][::-1]],
        "of these there were 2": BLOCKS[:2],
    }
    for at in range(3):
        changed = [*BLOCKS[:at], (BLOCKS[at][0] + 1e-9, *BLOCKS[at][1:]), *BLOCKS[at + 1 :]]
        with pytest.raises(StateMismatchError, match="those given are others"):
            ka.solvers.accumulate(changed, PHI, checkpoint=path)
    for words, blocks in others.items():
        with pytest.raises(StateMismatchError, match=words):
            ka.solvers.accumulate(blocks, PHI, checkpoint=path)
    with pytest.raises(StateMismatchError, match="another draw"):
        ka.solvers.accumulate(BLOCKS, PHI.redraw(1), checkpoint=path)
    ka.solvers.save_moments(ka.solvers.moments(X, PHI), path)
    with pytest.raises(StateMismatchError, match="no checkpoint"):
        ka.solvers.accumulate(BLOCKS, PHI, checkpoint=path)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_other_products_are_refused(tmp_path, dtype):
    """Products of float64 rows are in float64 in any case: a later block may hold others."""
    path, blocks = tmp_path / "c.npz", [tuple(part.astype(dtype) for part in block) for block in BLOCKS]
    for products, other in (("float32", "float64"), ("float64", "float32")):
        whole = ka.solvers.accumulate(blocks, PHI, products=products)
        with pytest.raises(Killed):
            ka.solvers.accumulate(until(3, blocks), PHI, checkpoint=path, every=1e-9, products=products)
        with pytest.raises(StateMismatchError, match=f"products are {products}; got products={other}"):
            ka.solvers.accumulate(blocks, PHI, checkpoint=path, products=other)
        assert_same(ka.solvers.accumulate(blocks, PHI, checkpoint=path, products=products), whole, exact=True)
        path.unlink()


def test_refusals(tmp_path):
    with pytest.raises(EmptyInputError, match="there was no block"):
        ka.solvers.accumulate([], PHI)
    for given in (X, 3):
        with pytest.raises(ParameterError, match="blocks must be an iterable"):
            ka.solvers.accumulate(given, PHI)
    with pytest.raises(ParameterError, match="every must be a positive number"):
        ka.solvers.accumulate(BLOCKS, PHI, every=0)
    with pytest.raises(ParameterError, match="checkpoint must be the name"):
        ka.solvers.accumulate(BLOCKS, PHI, checkpoint=3)
    for place, error in ((tmp_path, ParameterError), (tmp_path / "none" / "c.npz", FileNotFoundError)):
        with pytest.raises(error, match="directory"):
            ka.solvers.accumulate(until(0), PHI, checkpoint=place)
    with pytest.raises(DTypeError, match="phi must be"):
        ka.solvers.accumulate(BLOCKS, "phi")
    with pytest.raises(ParameterError, match="got a tuple of 4") as found:
        ka.solvers.accumulate([BLOCKS[0], (X, Y, W, W)], PHI)
    assert found.value.__notes__ == ["in block 1, counted from 0"]
    with pytest.raises(ShapeError) as shape:
        ka.solvers.accumulate([X, X[:, :2]], PHI)
    assert shape.value.__notes__ == ["in block 1, counted from 0"]


def test_progress(capsys):
    pytest.importorskip("tqdm")
    ka.solvers.accumulate(BLOCKS, PHI, progress=True)
    assert "90.0row" in capsys.readouterr().err
    ka.solvers.accumulate(BLOCKS, PHI)
    assert capsys.readouterr().err == ""
