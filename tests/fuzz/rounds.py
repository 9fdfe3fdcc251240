"""Rounds of a fuzzer: seeded, timed, and the smallest failure told in a line that repeats it.

KERNATTN_FUZZ_SECONDS is the time of each fuzzer, KERNATTN_FUZZ_SEED what its cases come from, KERNATTN_FUZZ_CASE one of
them to repeat alone.
"""

import os
import time
import traceback
from collections import Counter
from itertools import count
from pathlib import Path

import numpy as np
import pytest

SECONDS = float(os.environ.get("KERNATTN_FUZZ_SECONDS", "4"))
SEED = int(os.environ.get("KERNATTN_FUZZ_SEED", "1"))
ONLY = os.environ.get("KERNATTN_FUZZ_CASE")
ENOUGH = 30  # failures


def fuzz(file, draw, check):
    """Draw cases and check them until the time is over; a case has a `size`, a `kind` to count by, and a repr."""
    failures, tried, start = [], Counter(), time.monotonic()
    for i in count() if ONLY is None else [int(ONLY)]:
        if time.monotonic() - start > SECONDS or len(failures) >= ENOUGH:
            break
        case = draw(np.random.default_rng([SEED, i]))
        tried[case.kind] += 1
        try:
            check(case)
        except Exception as error:
            failures.append((case.size, i, case, error, traceback.format_exc(limit=-3)))
    seconds, kinds = time.monotonic() - start, dict(tried.most_common())
    print(f"{sum(tried.values())} cases of seed {SEED} in {seconds:.0f} s: {kinds}")
    if failures:
        _, i, case, error, trace = min(failures, key=lambda failure: failure[:2])
        pytest.fail(
            f"{len(failures)} failures; the smallest is\n{case}\n{type(error).__name__}: {error}\n{trace}\n"
            f"KERNATTN_FUZZ_SEED={SEED} KERNATTN_FUZZ_CASE={i} python -m pytest tests/fuzz/{Path(file).name}",
            pytrace=False,
        )
