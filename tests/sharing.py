"""Threads that share a loop, and threads that call at once."""

import threading

from kernattn._runtime.parallel import share

LONG = 1.0  # seconds of work claimed, so that it is shared


def assert_three_share():
    """Each of three threads takes a slab and waits for the others."""
    meet = threading.Barrier(3, timeout=600)
    who = set()

    def loop(low, high):
        if len(who) < 3:
            who.add(threading.get_ident())
            meet.wait()

    share(loop, 3, LONG)
    assert len(who) == 3


def at_once(run, count=8):
    """Call run(0), ..., run(count - 1) in a thread each."""
    runners = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join(timeout=600)
    assert not any(runner.is_alive() for runner in runners)
