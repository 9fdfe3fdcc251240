"""Loops shared with helpers that wait awake: the same results, every slab once, threads and forks are safe."""

import multiprocessing
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

pytest.importorskip("numba")

import kernattn as ka
from kernattn._parallel import VARIABLE, share
from kernattn.ops._numba import crew as module
from kernattn.ops._numba.compile import compiled
from kernattn.ops._numba.crew import close, crew, offer_of, open_, taken

LONG = 1.0  # seconds of work claimed, so that helpers are sent for
TRIES = 1 << 31  # looks at a number that another thread is to change, some ten seconds


@pytest.fixture(autouse=True)
def three_threads(monkeypatch):
    """Three threads, and a board on which nobody looks yet."""
    monkeypatch.setenv(VARIABLE, "3")
    monkeypatch.setattr(module, "_crew", module._Crew())


def _slab(arguments, low, high):
    seen, arrived, wanted = arguments
    seen[low:high] += 1
    module._add(arrived, 0, 1)
    left = TRIES
    while module._get(arrived, 0, 0) < wanted and left > 0:
        left -= 1
    if left == 0:
        seen[low:high] += 1000


_offer = offer_of(_slab)


@compiled
def visit(seen, arrived, wanted, board, slabs, count):
    """Count visits of all numbers; those who take slabs wait until so many of them were taken."""
    if taken(board):
        return False
    _offer(board, (seen, arrived, wanted))
    open_(board, slabs, count)
    close(board)
    return True


def visits(count, wanted):
    seen, arrived = np.zeros(count, np.int64), np.zeros(1, np.int64)
    assert visit(seen, arrived, wanted, *crew(count, LONG), count)
    return seen, int(arrived[0])


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 64])
def test_every_number_once(count):
    for _ in range(20):
        seen, slabs = visits(count, 1)
        assert (seen == 1).all()
        assert slabs == min(count, 6)


def test_helpers_take_part():
    """Three slabs are taken at once: nobody goes on before."""
    seen, slabs = visits(6, 3)
    assert (seen == 1).all()
    assert slabs == 6


def test_short_work_stays_with_the_caller():
    assert crew(1000, 1e-6)[1] == 1
    assert crew(1, LONG)[1] == 1


def test_a_lone_call_sends_for_nobody():
    assert crew(64, 1e-4)[1] == 1
    time.sleep(0.01)
    assert crew(64, 1e-4)[1] == 1


def test_calls_in_a_row_find_helpers():
    assert crew(64, 1.0)[1] == 6
    assert crew(64, 1e-4)[1] == 6


def test_helpers_leave_for_other_work():
    visits(6, 3)
    meet = threading.Barrier(3, timeout=60)
    who = set()

    def loop(low, high):
        if len(who) < 3:
            who.add(threading.get_ident())
            meet.wait()

    share(loop, 3, LONG)
    assert len(who) == 3


def test_a_board_that_is_taken_is_left_alone():
    board = np.zeros(module.PLACES, np.int64)
    seen, arrived = np.zeros(4, np.int64), np.zeros(1, np.int64)
    board[module.OWNER] = 1
    assert not visit(seen, arrived, 1, board, 2, 4)
    assert not seen.any()


def decoded(heads, seed, reuse, shared, monkeypatch=None):
    """Return the outputs and the last state of eight tokens."""
    rng = np.random.default_rng(seed)
    phi = ka.random_features(ka.kernels.Softmax(), dim=8, num_features=12, rng=0)
    q, k, v = rng.standard_normal((3, heads, 9, 8)).astype(np.float32)
    state = ka.key_state(k[:, :1], v[:, :1], phi)
    if monkeypatch is not None:
        monkeypatch.setattr(module._crew, "slabs", lambda count, seconds: shared)
    outputs = []
    for t in range(1, 9):
        out, state = ka.linear_attention_step(state, q[:, t], k[:, t], v[:, t], phi, reuse_state=reuse, backend="cpu")
        outputs.append(out)
    return np.stack(outputs), state


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("heads", [2, 7, 33])
def test_tokens_are_the_same_shared_and_alone(heads, reuse, monkeypatch):
    alone, last = decoded(heads, 1, reuse, 1, monkeypatch)
    visits(6, 3)  # helpers are there
    shared, also = decoded(heads, 1, reuse, min(heads, 6), monkeypatch)
    np.testing.assert_array_equal(shared, alone)
    for mine, theirs in zip(also[:3], last[:3], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_eight_threads_decode_at_once(monkeypatch):
    expected = [decoded(16, seed, False, 1, monkeypatch)[0] for seed in range(8)]
    monkeypatch.setattr(module._crew, "slabs", lambda count, seconds: 6)
    found = [None] * 8

    def run(me):
        for _ in range(20):
            found[me] = decoded(16, me, False, 6)[0]

    visits(6, 3)
    runners = [threading.Thread(target=run, args=(me,)) for me in range(8)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join(timeout=120)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


FORK = """
import multiprocessing, warnings
import numpy as np
import kernattn as ka
from kernattn.ops._numba import crew

def total():
    phi = ka.features.elu1()
    q, k, v = np.ones((3, 128, 2, 64), np.float32)
    state = ka.key_state(k, v, phi)
    for _ in range(20):
        out, state = ka.linear_attention_step(state, q[:, 0], k[:, 0], v[:, 0], phi)
    return float(out.sum()), bool(crew._crew.board[crew.TURN] > 0)

expected = (128 * 64.0, True)
assert total() == expected
crew._crew.board[crew.OWNER] = 1  # as if another thread were in the middle of its loop
warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which is what is tried here
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.starmap(total, [()] * 4, chunksize=1) == [expected] * 4
print("fine")
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_forked_child_has_a_board_of_its_own():
    done = subprocess.run(
        [sys.executable, "-c", FORK],
        env={**os.environ, VARIABLE: "3"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout == "fine\n", done.stderr
