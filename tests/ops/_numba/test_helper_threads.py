"""Loops shared with helpers that wait awake: the same results, every slab once, threads and forks are safe."""

import multiprocessing

import numpy as np
import pytest

pytest.importorskip("numba")

import kernattn as ka
from kernattn.ops._numba import helper_threads as module
from kernattn.ops._numba.codegen.compile import compiled, inner
from kernattn.ops._numba.helper_threads import board_for, close_board, make_offer, share_slabs, take_board
from processes import assert_fine
from sharing import LONG, assert_three_share, at_once

LOOKS = 1 << 28  # at a number that another thread is to change, some tenths of a second
TRIES = 100


@pytest.fixture(autouse=True)
def three_threads(monkeypatch):
    """Three threads, and a board on which nobody looks yet."""
    monkeypatch.setenv("KERNATTN_NUM_THREADS", "3")
    monkeypatch.setattr(module, "_helpers", module._Helpers())


@inner
def _slab(arguments, low, high):
    seen, arrived, met, wanted = arguments
    for i in range(low, high):
        seen[i] += 1
    module._add(arrived, 0, 1)
    left = LOOKS
    while module._get(arrived, 0, 0) < wanted and left > 0:
        left -= 1
    if left > 0:
        module._add(met, 0, 1)


_offer = make_offer(_slab)


@compiled
def visit(seen, arrived, met, wanted, board, slabs, count):
    """Count visits of all numbers; those who take slabs wait a while until so many of them were taken."""
    if take_board(board):
        return False
    _offer(board, (seen, arrived, met, wanted))
    share_slabs(board, slabs, count)
    close_board(board)
    return True


def visits(count, wanted):
    """Return in how many slabs all numbers were visited, and whether all who took one met so many."""
    seen, arrived, met = np.zeros(count, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64)
    assert visit(seen, arrived, met, wanted, *board_for(count, LONG), count)
    assert (seen == 1).all()
    return int(arrived[0]), met[0] == arrived[0]


def gather():
    """Share until three threads have met: on a busy machine helpers may lose patience before their caller is there."""
    assert any(visits(6, 3)[1] for _ in range(TRIES))


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 64])
def test_every_number_once(count):
    for _ in range(20):
        assert visits(count, 1) == (min(count, 6), True)


def test_helpers_take_part():
    gather()


def test_short_work_stays_with_the_caller():
    assert board_for(1000, 1e-6)[1] == 1
    assert board_for(1, LONG)[1] == 1


def test_when_helpers_are_sent_for(monkeypatch):
    now, sent = [100.0], []
    monkeypatch.setattr(module, "perf_counter", lambda: now[0])
    monkeypatch.setattr(module, "stand_by", lambda wait, helpers: sent.append(helpers))

    def slabs_after(pause, seconds=1e-4):
        now[0] += pause
        return board_for(64, seconds)[1]

    assert slabs_after(1.0) == 1  # alone, and short
    assert slabs_after(0.01) == 1
    assert sent == []
    assert slabs_after(2e-4) == 6  # one of many
    assert slabs_after(2e-4) == 6  # they are on their way
    assert sent == [2]
    assert slabs_after(1.0, LONG) == 6  # long
    assert sent == [2, 2]
    board = board_for(64, 1e-4)[0]
    board[module.WATCHERS] = 1
    assert slabs_after(0.01) == 6  # one of two is there
    assert sent == [2, 2, 2]
    board[module.WATCHERS] = 2
    assert slabs_after(0.01) == 6
    assert sent == [2, 2, 2]


def test_helpers_leave_for_other_work():
    gather()
    assert_three_share()


def test_a_board_that_is_taken_is_left_alone():
    board = np.zeros(module.PLACES, np.int64)
    seen, arrived, met = np.zeros(4, np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64)
    board[module.OWNER] = 1
    assert not visit(seen, arrived, met, 1, board, 2, 4)
    assert not seen.any()


def decoded(heads, seed, reuse, shared, monkeypatch=None):
    """Return the outputs and the last state of eight tokens."""
    rng = np.random.default_rng(seed)
    phi = ka.random_features(ka.kernels.Softmax(), dim=8, num_features=12, rng=0)
    q, k, v = rng.standard_normal((3, heads, 9, 8)).astype(np.float32)
    state = ka.key_state(k[:, :1], v[:, :1], phi)
    if monkeypatch is not None:
        monkeypatch.setattr(module._helpers, "slabs", lambda count, seconds: shared)
    outputs = []
    for t in range(1, 9):
        out, state = ka.linear_attention_step(state, q[:, t], k[:, t], v[:, t], phi, reuse_state=reuse, backend="cpu")
        outputs.append(out)
    return np.stack(outputs), state


@pytest.mark.parametrize("reuse", [False, True])
@pytest.mark.parametrize("heads", [2, 7, 33])
def test_tokens_are_the_same_shared_and_alone(heads, reuse, monkeypatch):
    gather()
    alone, last = decoded(heads, 1, reuse, 1, monkeypatch)
    shared, also = decoded(heads, 1, reuse, min(heads, 6), monkeypatch)
    np.testing.assert_array_equal(shared, alone)
    for mine, theirs in zip(also[:3], last[:3], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_eight_threads_decode_at_once(monkeypatch):
    gather()
    expected = [decoded(16, seed, False, 1, monkeypatch)[0] for seed in range(8)]
    monkeypatch.setattr(module._helpers, "slabs", lambda count, seconds: 6)
    found = [None] * 8

    def run(me):
        for _ in range(20):
            found[me] = decoded(16, me, False, 6)[0]

    at_once(run)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


FORK = """
import multiprocessing, warnings
import numpy as np
import kernattn as ka
from kernattn.ops._numba import helper_threads as waiting

waiting.SOON = 60.0  # steps follow each other on a slow machine, too

def total():
    phi = ka.features.elu1()
    q, k, v = np.ones((3, 128, 2, 64), np.float32)
    state = ka.key_state(k, v, phi)
    for _ in range(20):
        out, state = ka.linear_attention_step(state, q[:, 0], k[:, 0], v[:, 0], phi)
    return float(out.sum()), bool(waiting._helpers.board[waiting.TURN] > 0)

expected = (128 * 64.0, True)
assert total() == expected
waiting._helpers.board[waiting.OWNER] = 1  # as if another thread were in the middle of its loop
warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which is what is tried here
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.starmap(total, [()] * 4, chunksize=1) == [expected] * 4
print("fine")
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_forked_child_has_a_board_of_its_own():
    assert_fine(FORK, KERNATTN_NUM_THREADS="3")
