"""What is kept for the next call of one form."""

import numpy as np
import pytest

pytest.importorskip("numba")

from kernattn.ops._numba.tiles.form_cache import FORMS, SMALL, keep_while_small


def counted():
    calls = []

    @keep_while_small
    def table(size, name):
        calls.append(name)
        return name, (np.zeros(size, np.int8),)

    return table, calls


def test_small_tables_are_made_once_and_large_ones_each_time():
    table, calls = counted()
    for size in (SMALL, SMALL + 1):
        for _ in range(3):
            assert table(size, "it")[1][0].size == size
    assert len(calls) == 1 + 3


def test_as_many_forms_are_kept_as_were_said():
    table, calls = counted()
    for _ in range(2):
        for form in range(FORMS):
            table(1, form)
    assert len(calls) == FORMS
    table(1, "one more")
    table(1, 0)
    assert calls[FORMS:] == ["one more", 0], "which forms are dropped does not matter, that some are does"
