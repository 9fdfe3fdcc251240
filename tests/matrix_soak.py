"""The matrix unit in bad company: older threads, busy threads, forks of them, and another library's tiles between."""

import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import ml_dtypes
import numpy as np

import kernattn as ka


def alternate(count, torch=None):
    """Attend `count` times on each of two threads, with forks; every answer has the bits of the first.

    One thread is older than the permission to use the unit, where the process has not asked yet. torch multiplies in
    between where it is given.
    """
    older = ThreadPoolExecutor(1)
    assert older.submit(threading.get_ident).result() != threading.get_ident()
    x = np.random.default_rng(0).standard_normal((48, 32)).astype(ml_dtypes.bfloat16)
    wanted = ka.softmax_attention(x, x, x, backend="cpu")
    exact = ka.softmax_attention(*3 * [x.astype("f8")], backend="reference")
    np.testing.assert_allclose(wanted.astype("f8"), exact, rtol=2.0**-8, atol=2.0**-12)

    def same():
        return bool((ka.softmax_attention(x, x, x, backend="cpu").view("u2") == wanted.view("u2")).all())

    stop, others = threading.Event(), ThreadPoolExecutor(1)

    def work():
        done = True
        while not stop.is_set():
            done = same() and done
        return done

    busy = others.submit(work)
    try:
        y = None if torch is None else torch.ones(256, 256, dtype=torch.bfloat16)
        for i in range(count):
            if y is not None:
                assert float((y @ y)[0, 0]) == 256  # it configures tiles of its own
            assert same()
            assert older.submit(same).result()
            if i % 3 == 0:
                assert _in_fork(same) == 0
    finally:
        stop.set()
    assert busy.result()


def _in_fork(same):
    """Return how a fork ended: 0 where it found the same, else its code or minus the signal that killed it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forks beside threads are what this is about
        child = os.fork()
    if child == 0:
        code = 2
        try:
            code = 0 if same() else 1
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
