"""Children forked while other threads build and first use maps, compile or import: none waits for them."""

import multiprocessing

import pytest

from processes import assert_fine

pytestmark = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")

CHILDREN = """
import os, threading, time, warnings
import numpy as np
import kernattn as ka

warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which is what is tried here

def endless(work):
    def churn():
        while True:
            work()
    threading.Thread(target=churn, daemon=True).start()

def forked(work):
    pid = os.fork()
    if pid == 0:
        work()
        os._exit(0)
    end = time.monotonic() + 600
    while time.monotonic() < end:
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        time.sleep(0.002)
    os.kill(pid, 9)
    print("a child hangs")
    os._exit(1)

def fine():
    print("fine", flush=True)
    os._exit(0)
"""

FIRST_USES = """
from dataclasses import replace

# OpenBLAS holds a lock of its own for a moment in each call, which a fork may cut in two; einsum calls no BLAS
np.matmul = lambda x1, x2: np.einsum("...ij,...jk->...ik", x1, x2)
drawn = [
    ka.random_features(ka.kernels.Softmax(), dim=64, num_features=1024),
    ka.random_features(ka.kernels.Gaussian(), dim=64, num_features=128, projection="hadamard"),
    ka.random_features(ka.kernels.Polynomial(2), dim=64, num_features=128),
]
x = np.ones((2, 64))

def use():
    for phi in drawn:
        phi = replace(phi)  # which has computed nothing yet
        phi.fingerprint, phi(x, backend="reference")

use()
for _ in range(3):
    endless(use)
for _ in range(60):
    time.sleep(0.002)
    forked(use)
fine()
"""

COMPILING = """
import numba
import kernattn.ops._numba.codegen.compile

def compile_one():
    numba.njit(lambda x: x + 1)(1)

compile_one()
endless(compile_one)
for _ in range(5):
    time.sleep(0.05)
    forked(compile_one)
fine()
"""

IMPORTING = """
import sys
from kernattn._runtime.fork import import_whole

with open("slow_to_import.py", "w") as file:
    file.write("import time, __main__; __main__.begun.set(); time.sleep(0.5)")
begun = threading.Event()
sys.path.insert(0, "")
threading.Thread(target=lambda: import_whole("slow_to_import")).start()
begun.wait()
forked(lambda: import_whole("slow_to_import"))
fine()
"""

FIRST_ARRAYS = """
import sys

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "array_api_compat.numpy":
            begun.set()
            time.sleep(0.5)

begun = threading.Event()

for name in [name for name in sys.modules if name.startswith("array_api_compat.numpy")]:
    del sys.modules[name]
sys.meta_path.insert(0, Slow())

def use():
    ka.features.elu1()(np.ones((2, 3)), backend="reference")

threading.Thread(target=use).start()
begun.wait()
forked(use)
fine()
"""


def test_first_uses_hold_no_lock():
    assert_fine(CHILDREN + FIRST_USES)


def test_a_fork_waits_for_compilers():
    pytest.importorskip("numba")
    assert_fine(CHILDREN + COMPILING)


def test_a_fork_waits_for_imports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_fine(CHILDREN + IMPORTING)


def test_a_fork_waits_for_the_namespace_of_the_first_array():
    assert_fine(CHILDREN + FIRST_ARRAYS)


LOGGING = """
import os, sys, threading
import kernattn
from kernattn._runtime import fork as _fork
import logging

compiling, stop = threading.RLock(), []
_fork.make_forks_wait_for(compiling)
logger = logging.getLogger("compiler")

def compile_and_log():
    while not stop:
        with compiling:
            logger.manager._clear_cache()
            logger.debug("a pass")

thread = threading.Thread(target=compile_and_log, daemon=True)
thread.start()
for _ in range(300):
    if (pid := os.fork()) == 0:
        os._exit(0)
    os.waitpid(pid, 0)
stop.append(True)
thread.join()
print("fine", flush=True)
"""


def test_a_fork_waits_for_compilers_before_it_takes_the_lock_of_logging():
    """In the other order a thread that logs while it compiles and a fork wait for each other."""
    assert_fine(LOGGING)
