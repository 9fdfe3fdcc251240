"""Where helpers run: off the caller's core."""

import os
import sys
import threading

import pytest

from kernattn._runtime import affinity as _placement
from kernattn._runtime.affinity import FEW, keep_off
from kernattn._runtime.parallel import share

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
def test_off_the_callers_core(two_cores):
    keep_off([11, 12])
    assert two_cores == [(11, {0}), (12, {0})]


@linux
def test_one_core_is_shared(two_cores, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {1})
    keep_off([11])
    assert two_cores == [(11, {1})]


@linux
def test_many_cores_are_left_to_the_system(two_cores, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(FEW + 1)))
    keep_off([11])
    assert two_cores == []


@linux
def test_a_system_that_forbids_it_is_obeyed(two_cores, monkeypatch):
    def forbid(*_):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setaffinity", forbid)
    keep_off([11])


@linux
def test_helpers_share_the_callers_cores(monkeypatch):
    monkeypatch.setenv("KERNATTN_NUM_THREADS", "2")
    meet, found = threading.Barrier(2, timeout=600), {}

    def loop(low, high):
        if threading.get_ident() not in found:
            found[threading.get_ident()] = os.sched_getaffinity(0)
            meet.wait()

    share(loop, 2, 1.0)
    mine = found.pop(threading.get_ident())
    (its,) = found.values()
    assert its <= mine
    assert len(its) == max(1, len(mine) - 1) or len(mine) > FEW
