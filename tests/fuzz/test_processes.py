"""Threads, forks and interrupts at random moments: every process ends, and what it answers is right."""

import os
import subprocess
import sys
from dataclasses import dataclass

import pytest

from fuzz.rounds import fuzz

SCRIPT = """
import os, random, signal, sys, threading, time, warnings
import numpy as np
import kernattn as ka

seed, threads, forks, interrupts = map(int, sys.argv[1:])
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins with it ignored
warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which is what is tried here
chance = random.Random(seed)
q = np.ones((4, 700, 32), np.float32)

def work(rng):
    estimator = rng.choice(["positive", "trigonometric"])  # and no BLAS, which has a lock of its own
    phi = ka.random_features(ka.kernels.Softmax(), 32, 64, estimator, "iid", rng=rng.randrange(9))
    form = rng.randrange(4)
    if form == 0:
        out = ka.linear_attention(q, q, q, phi)
    elif form == 1:
        out, state = ka.causal_linear_attention(q, q, q, phi)
        for t in range(20):
            token, state = ka.linear_attention_step(state, q[:, t], q[:, t], q[:, t], phi)
            np.testing.assert_allclose(token, 1.0, rtol=1e-3)
    elif form == 2:
        out = ka.softmax_attention(q, q, q, causal=True)
    else:
        out = ka.attend(ka.key_state(q, q, phi), q, phi)
    np.testing.assert_allclose(out, 1.0, rtol=1e-3)

def churn(rng):
    while True:
        work(rng)

work(random.Random(0))
for i in range(threads):
    threading.Thread(target=churn, args=(random.Random(seed + i),), daemon=True).start()
for _ in range(forks):
    time.sleep(chance.random() * 0.02)
    pid = os.fork()
    if pid == 0:
        try:
            work(chance)
        except BaseException:
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
for _ in range(interrupts):
    timer = threading.Timer(chance.random() * 0.05, signal.raise_signal, (signal.SIGINT,))
    try:
        timer.start()
        for _ in range(3):
            work(chance)
        timer.join()
        time.sleep(0.01)  # where an interrupt that is late shows; one raised in a finalizer is lost, by Python's rules
    except KeyboardInterrupt:
        pass
    timer.join()
    work(chance)
print("fine", flush=True)
os._exit(0)
"""


@dataclass(frozen=True)
class Process:
    """What one process does."""

    kind: str
    cores: int
    threads: int
    forks: int
    interrupts: int
    seed: int

    @property
    def size(self):
        return self.threads + self.forks + self.interrupts


def drawn(rng):
    return Process(
        kind="process",
        cores=int(rng.integers(1, 5)),
        threads=int(rng.integers(0, 4)),
        forks=int(rng.integers(0, 6)),
        interrupts=int(rng.integers(0, 6)),
        seed=int(rng.integers(2**31)),
    )


def checked(case):
    numbers = (case.seed, case.threads, case.forks, case.interrupts)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *map(str, numbers)],
        env=os.environ | {"KERNATTN_NUM_THREADS": str(case.cores)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.stdout == "fine\n", f"exit {done.returncode}\n{done.stderr[-3000:]}"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_processes():
    pytest.importorskip("numba")
    fuzz(__file__, drawn, checked, cases=2)
