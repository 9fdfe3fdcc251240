"""Threads that share a loop."""

import threading

from kernattn._parallel import share

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
