"""The thread pool: every index once, errors come through, threads and forks are safe."""

import multiprocessing
import os
import subprocess
import sys
import threading
import weakref

import numpy as np
import pytest

from kernattn._runtime import parallel as _parallel
from kernattn._runtime.parallel import share, threads
from kernattn.errors import ParameterError
from processes import assert_fine
from sharing import LONG, assert_three_share, at_once

HANG = 600  # seconds


@pytest.fixture
def three_threads(monkeypatch):
    monkeypatch.setenv("KERNATTN_NUM_THREADS", "3")


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("count", [0, 1, 2, 3, 11, 12, 13, 1000])
def test_every_index_once(count):
    seen = np.zeros(count, int)

    def loop(low, high):
        seen[low:high] += 1

    share(loop, count, LONG)
    assert (seen == 1).all()


@pytest.mark.parametrize("threads", ["1", "3"])
def test_long_work_comes_in_short_slabs(threads, monkeypatch):
    monkeypatch.setenv("KERNATTN_NUM_THREADS", threads)
    sizes = []
    share(lambda low, high: sizes.append(high - low), 1000, 100 * _parallel.LONGEST)
    assert sum(sizes) == 1000
    assert max(sizes) <= 10


@pytest.mark.usefixtures("three_threads")
def test_little_work_stays_with_the_caller():
    calls = []
    share(lambda low, high: calls.append((low, high, threading.get_ident())), 100, 1e-6)
    assert calls == [(0, 100, threading.get_ident())]


@pytest.mark.usefixtures("three_threads")
def test_others_help():
    assert_three_share()


@pytest.mark.usefixtures("three_threads")
def test_an_error_comes_through_and_the_pool_goes_on():
    def fail(low, high):
        if low <= 5 < high:
            raise ValueError("index 5")

    with pytest.raises(ValueError, match="index 5"):
        share(fail, 10, LONG)
    test_every_index_once(13)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_after_an_interrupt_or_an_error_no_slab_begins(error, monkeypatch):
    me, begun, helped, freed = threading.get_ident(), [], threading.Event(), threading.Event()

    def loop(low, high):
        begun.append(low)
        if threading.get_ident() == me:
            helped.wait(HANG)
            raise error
        helped.set()
        freed.wait(HANG)

    wait = _parallel._Job.wait
    monkeypatch.setattr(_parallel._Job, "wait", lambda job: freed.set() or wait(job))
    with pytest.raises(error):
        share(loop, 12, LONG)
    assert freed.is_set() == (error is ValueError), "an interrupt does not wait for helpers"
    freed.set()
    assert_three_share()  # so all are done with what came before
    assert len(begun) <= 3, "one slab a thread"
    test_every_index_once(13)


INTERRUPTED = """
import signal, threading
import numpy as np
import kernattn as ka
from kernattn._runtime import parallel as _parallel

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins with it ignored
me, begun, jobs, all_work, freed = threading.get_ident(), [], [], threading.Barrier(3), threading.Event()

class Job(_parallel._Job):
    def __init__(self, loop, count, slabs):
        jobs.append(slabs)
        first = len(jobs) == 1

        def held_up(low, high):
            begun.append(low)
            if first:
                all_work.wait()
            if threading.get_ident() != me:
                freed.wait()
            if first:
                interrupt = threading.Thread(target=signal.raise_signal, args=(signal.SIGINT,))
                interrupt.start()
                loop(low, high)
                interrupt.join()
            loop(low, high)

        super().__init__(held_up, count, slabs)

_parallel._Job = Job
q = np.ones((16, 2048, 64), np.float32)
try:
    ka.softmax_attention(q, q, q)
    raise SystemExit("nothing was interrupted")
except KeyboardInterrupt:
    pass
assert len(begun) == 3 < jobs[0], (begun, jobs)
np.testing.assert_allclose(ka.softmax_attention(q, q, q), 1.0, rtol=1e-5)  # while its helpers are held up
assert len(jobs) == 2 and len(begun) == 3 + jobs[1], (begun, jobs)
print("fine", flush=True)
"""


def test_a_call_after_an_interrupt_need_not_wait():
    pytest.importorskip("numba")
    assert_fine(INTERRUPTED, KERNATTN_NUM_THREADS="3")


@pytest.mark.usefixtures("three_threads")
def test_nested_and_from_eight_threads():
    total = np.zeros((8, 40, 30), int)

    def run(me):
        def outer(low, high):
            for i in range(low, high):
                share(lambda a, b, i=i: total[me, i].__setitem__(slice(a, b), total[me, i, a:b] + 1), 30, LONG)

        share(outer, 40, LONG)

    at_once(run)
    assert (total == 1).all()


@pytest.mark.parametrize("given", ["0", "-1", "two", "", "1.5", "²"])
def test_the_number_of_threads_is_checked(given, monkeypatch):
    monkeypatch.setenv("KERNATTN_NUM_THREADS", given)
    with pytest.raises(ParameterError, match="KERNATTN_NUM_THREADS"):
        threads()


def test_the_number_of_threads_follows_the_machine(monkeypatch):
    monkeypatch.delenv("KERNATTN_NUM_THREADS", raising=False)
    assert 1 <= threads() <= (os.cpu_count() or 1)
    monkeypatch.setenv("KERNATTN_NUM_THREADS", "7")
    assert threads() == 7


FORK = """
import multiprocessing, warnings
import numpy as np
from kernattn._runtime.parallel import share

def total():
    parts = np.zeros(64)
    def loop(low, high):
        parts[low:high] = 1
    share(loop, 64, 1.0)
    return parts.sum()

assert total() == 64
warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which is what is tried here
with multiprocessing.get_context("fork").Pool(2) as pool:
    assert pool.starmap(total, [()] * 4, chunksize=1) == [64] * 4
assert total() == 64
print("fine")
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_a_forked_child_has_a_pool_of_its_own():
    assert_fine(FORK, KERNATTN_NUM_THREADS="3")


def test_importing_starts_no_thread():
    code = "import threading, kernattn._runtime.parallel; print(threading.active_count())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout == "1\n"
    assert _parallel.WORTH_SHARING > 0


def test_a_helper_that_never_wakes_keeps_no_arrays(three_threads, monkeypatch):
    jobs = []
    monkeypatch.setattr(_parallel._pool, "help", jobs.extend)
    seen = np.zeros(12, int)

    def loop(low, high, held=seen):
        held[low:high] += 1

    gone = weakref.ref(loop)
    share(loop, 12, LONG)
    del loop
    assert len(jobs) == 2
    assert gone() is None
    for job in jobs:
        job.work()
    np.testing.assert_array_equal(seen, 1)
