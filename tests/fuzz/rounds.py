"""Rounds of a fuzzer: seeded, and the smallest failure told in a line that repeats it.

A fuzzer tries as many cases as it names, the same ones on every machine. KERNATTN_FUZZ_SECONDS lets it go on for that
long, KERNATTN_FUZZ_SEED is what its cases come from, KERNATTN_FUZZ_CASE one of them to repeat alone.
"""

import os
import time
import traceback
from collections import Counter
from itertools import count
from pathlib import Path

import numpy as np
import pytest

SECONDS = float(os.environ.get("KERNATTN_FUZZ_SECONDS", "0"))
SEED = int(os.environ.get("KERNATTN_FUZZ_SEED", "1"))
ONLY = os.environ.get("KERNATTN_FUZZ_CASE")
ENOUGH = 30  # failures


def fuzz(file, draw, check, cases):
    """Draw that many cases, more while there is time, and check them; a case has a `size`, a `kind` and a repr."""
    failures, tried, start = [], Counter(), time.monotonic()
    for i in count() if ONLY is None else [int(ONLY)]:
        if (i >= cases and ONLY is None and time.monotonic() - start > SECONDS) or len(failures) >= ENOUGH:
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
