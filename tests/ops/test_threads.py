"""Compiled linear attention on threads: several callers at once, forked children, and when work is shared."""

import os

import numpy as np
import pytest

from processes import assert_fine
from seam import MapSpec
from sharing import at_once

pytest.importorskip("numba")

from kernattn.ops.causal.cpu import causal
from kernattn.ops.key_state.cpu import key_state


def inputs(seed, *shapes):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def test_eight_threads_at_once(on_threads):
    on_threads(3)
    omega = np.random.default_rng(0).standard_normal((16, 8)) * 8**-0.25
    spec = MapSpec("exp", omega, row_weights=np.full(8, -0.5 * 8**-0.5))
    cases = [inputs(i, (3, 150, 8), (3, 150, 8), (3, 150, 4)) for i in range(8)]
    wanted = [causal(*case, spec, spec, None, None, None, False)[0] for case in cases]
    results = [[] for _ in cases]

    def run(i):
        for _ in range(10):
            results[i].append(causal(*cases[i], spec, spec, None, None, None, False)[0])

    at_once(run)
    for got, want in zip(results, wanted, strict=True):
        assert len(got) == 10
        for out in got:
            np.testing.assert_array_equal(out, want)


FORK = """
import multiprocessing, warnings
import numpy as np
from kernattn.ops.causal.cpu import causal
from seam import MapSpec
import kernattn._runtime.parallel as parallel

parallel.WORTH_SHARING = 0.0
spec = MapSpec("elu1")
x = np.random.default_rng(0).standard_normal((4, 200, 8)).astype("f4")

def run():
    return causal(x, x, x, spec, spec, None, None, None, False)[0]

before = run()
warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, which is what is tried here
with multiprocessing.get_context("fork").Pool(2) as pool:
    for out in pool.starmap(run, [()] * 4, chunksize=1):
        assert np.array_equal(out, before)
assert np.array_equal(run(), before)
print("fine")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_computes():
    assert_fine(FORK, KERNATTN_NUM_THREADS="3")


def test_work_is_counted_in_tokens(monkeypatch):
    """What is shared among threads is decided by the tokens of all runs."""
    counted = []
    monkeypatch.setattr(
        "kernattn.ops.key_state.recurrence.share", lambda loop, count, seconds: counted.append((count, seconds))
    )
    monkeypatch.setenv("KERNATTN_NUM_THREADS", "2")
    spec = MapSpec("elu1")
    for heads, n in ((8, 512), (8, 1024), (16, 1024)):
        q, k, v = inputs(1, *3 * [(heads, n, 64)])
        causal(q, k, v, spec, spec, None, None, None, False)
        key_state(k, v, spec, None)
    assert [count for count, _ in counted] == [8, 8, 8, 8, 16, 16]
    costs = np.array([seconds for _, seconds in counted]).reshape(3, 2)
    np.testing.assert_allclose(costs / costs[0], [[1, 1], [2, 2], [4, 4]], rtol=1e-12)
    assert 1e-4 < costs[0, 0] < 1e-2
