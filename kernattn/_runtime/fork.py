"""What a fork must not cut in two: a child waits for ever for a lock that another thread held when it was forked.

A fork waits until the threads that import or compile are done, and the child finds these locks open. What is registered
last is called first before a fork: so logging, whose lock Numba takes while it compiles, registers before this module.
"""

import logging  # noqa: F401
import os
import threading
from importlib import import_module
from types import ModuleType
from typing import Protocol


class _Lock(Protocol):
    def acquire(self) -> object: ...

    def release(self) -> object: ...


importing = threading.RLock()
"""Held while another library may import modules of its own."""

_locks: list[_Lock] = [importing]  # in the order in which a thread may hold several


def make_forks_wait_for(lock: _Lock) -> None:
    """Let forks wait for a lock, which may be taken inside of an import."""
    _locks.append(lock)


def import_whole(name: str) -> ModuleType:
    """Return a module, imported whole before any fork."""
    with importing:
        return import_module(name)


def _acquire() -> None:
    for lock in _locks:
        lock.acquire()


def _release() -> None:
    for lock in reversed(_locks):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_acquire, after_in_parent=_release, after_in_child=_release)
