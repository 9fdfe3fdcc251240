"""Where helpers wake: off the caller's core, and anywhere once they work."""

import os
import sys
import threading

import pytest

from kernattn import _placement
from kernattn._parallel import VARIABLE, share
from kernattn._placement import FEW, keep_off, set_free

linux = pytest.mark.skipif(sys.platform != "linux", reason="threads are placed on Linux only")


@pytest.fixture
def two_cores(monkeypatch):
    """A machine of cores 0 and 1, the caller on core 1; -> the affinities that were set."""
    affinities = []
    monkeypatch.setattr(_placement, "_sched_getcpu", lambda: lambda: 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cores: affinities.append((thread, set(cores))))
    return affinities


@linux
def test_off_the_callers_core_and_free_again(two_cores):
    cores = keep_off([11, 12])
    assert two_cores == [(11, {0}), (12, {0})]
    set_free(cores)
    assert two_cores[2:] == [(0, {0, 1})]


@linux
@pytest.mark.parametrize("allowed", [{1}, set(range(FEW + 1))])
def test_one_core_or_many_are_left_alone(two_cores, monkeypatch, allowed):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: allowed)
    assert keep_off([11]) is None
    set_free(None)
    assert two_cores == []


@linux
def test_a_system_that_forbids_it_is_obeyed(two_cores, monkeypatch):
    def forbid(*_):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", forbid)
    assert keep_off([11]) is None
    set_free(frozenset({0, 1}))


@linux
def test_helpers_work_wherever_the_caller_may(monkeypatch):
    monkeypatch.setenv(VARIABLE, "2")
    meet, found = threading.Barrier(2, timeout=60), {}

    def loop(low, high):
        if threading.get_ident() not in found:
            found[threading.get_ident()] = os.sched_getaffinity(0)
            meet.wait()

    share(loop, 2, 1.0)
    assert list(found.values()) == [os.sched_getaffinity(0)] * 2
