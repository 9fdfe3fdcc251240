"""Threads for loops that release the interpreter lock: a pool of our own, safe under Python threads and under fork.

A loop is a function of a range, ``loop(low, high)``. The caller works too, so a busy pool delays nobody and nested
calls cannot deadlock. A forked child starts a pool of its own.
"""

import itertools
import os
import sys
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import numpy as np
from numpy.typing import NDArray

from kernattn._runtime.affinity import keep_off
from kernattn._runtime.checks import shown
from kernattn.errors import ParameterError

VARIABLE = "KERNATTN_NUM_THREADS"
WORTH_SHARING = 250e-6  # seconds of work, well above what it takes a sleeping thread to wake
SLABS_PER_THREAD = 4  # so that a thread which lost its core holds nobody up
LONGEST = 0.1  # seconds of a slab, about: an interrupt waits for its end


def threads() -> int:
    """Return how many threads share a loop: KERNATTN_NUM_THREADS, or else the cores this process may use.

    A worker of PyTorch's DataLoader is one of many, and has one.
    """
    given = os.environ.get(VARIABLE)
    if given is None:
        if getattr(sys.modules.get("torch.utils.data._utils.worker"), "_worker_info", None) is not None:
            return 1
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not given.isascii() or not given.isdigit() or int(given) < 1:
        raise ParameterError(f"{VARIABLE} must be a positive integer; got {shown(given)}")
    return int(given)


def _nothing_left(low: int, high: int) -> None:
    """Stand for a loop all of whose slabs have run."""


class _Job:
    """A loop cut into slabs, which any thread may take next."""

    def __init__(self, loop: Callable[[int, int], None], count: int, slabs: int) -> None:
        self._loop = loop
        self._bounds = [count * i // slabs for i in range(slabs + 1)]
        self._next = itertools.count()
        self._finished: list[Exception | None] = []
        self._done = threading.Event()
        self._stopped = False

    def work(self) -> None:
        """Take slabs until none is left; once one has failed, or the job was stopped, the rest are not run."""
        slabs = len(self._bounds) - 1
        while (i := next(self._next)) < slabs:
            error: Exception | None = None
            try:
                if not self._stopped:
                    self._loop(self._bounds[i], self._bounds[i + 1])
            except Exception as raised:
                error, self._stopped = raised, True
            self._finished.append(error)
            if len(self._finished) == slabs:
                self._done.set()

    def stop(self) -> None:
        """Let no slab begin any more; those that run keep what they write to alive."""
        self._stopped = True

    def wait(self) -> None:
        """Wait for the slabs that other threads took, and raise what any of them raised.

        Then the loop is let go: a helper that wakes late, or never, keeps no arrays alive.
        """
        self._done.wait()
        self._loop = _nothing_left
        for error in self._finished:
            if error is not None:
                raise error


class _Pool:
    """Daemon threads that help with whatever job comes next."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._growing = threading.Lock()
        self.calls = np.zeros(1, np.int64)  # for those who stand by

    def help(self, jobs: Sequence[_Job]) -> None:
        """Give a helper each of the jobs."""
        with self._growing:
            for _ in range(len(jobs) - len(self._threads)):
                thread = threading.Thread(target=self._serve, name="kernattn", daemon=True)
                thread.start()
                self._threads.append(thread)
        keep_off(each.native_id for each in self._threads[: len(jobs)] if each.native_id is not None)
        self.calls[0] += 1
        for job in jobs:
            self._jobs.put(job)

    def _serve(self) -> None:
        while True:
            self._jobs.get().work()


_pool = _Pool()


def _renew() -> None:
    """Forget the parent's threads, which do not exist in a forked child."""
    global _pool  # noqa: PLW0603
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


def worth_sharing(seconds: float) -> bool:
    """Is so much work worth waking threads for?"""
    return seconds > WORTH_SHARING


def share(loop: Callable[[int, int], None], count: int, seconds: float) -> None:
    """Run ``loop(low, high)`` over ranges that cover range(count), in threads where `seconds` of work are worth it."""
    if not worth_sharing(seconds):
        if count:
            loop(0, count)
        return
    workers = min(threads(), count)
    slabs = min(count, max(workers * SLABS_PER_THREAD, int(seconds / LONGEST)))
    if workers <= 1 and (seconds < LONGEST or slabs <= 1):
        if count:
            loop(0, count)
        return
    job = _Job(loop, count, slabs)
    try:
        if workers > 1:
            _pool.help([job] * (workers - 1))
        job.work()
        job.wait()
    except BaseException:  # an interrupt, after which nobody waits
        job.stop()
        raise


def stand_by(wait: Callable[[NDArray[np.int64], int], None], helpers: int) -> None:
    """Let helpers run ``wait(calls, seen)``, which is to return once calls[0] is not `seen`: there is other work."""
    calls = _pool.calls
    seen = int(calls[0]) + 1
    _pool.help([_Job(lambda low, high: wait(calls, seen), 1, 1) for _ in range(helpers)])
