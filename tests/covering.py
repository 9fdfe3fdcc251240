"""Products of parameters, of which every value is usual, and every pair of values slow."""

from itertools import product

import pytest


def turns(firsts, seconds):
    """Every pair; usual are those that meet where both lists are gone through side by side, the shorter one again.

    Values that are tuples stand for several parameters.
    """
    firsts, seconds = (
        [each if isinstance(each, tuple) else (each,) for each in values] for values in (firsts, seconds)
    )
    usual = {(i % len(firsts), i % len(seconds)) for i in range(max(len(firsts), len(seconds)))}
    pairs = product(enumerate(firsts), enumerate(seconds))
    return [pytest.param(*a, *b, marks=[] if (i, j) in usual else pytest.mark.slow) for (i, a), (j, b) in pairs]
