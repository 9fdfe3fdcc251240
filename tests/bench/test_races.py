"""Races: contestants take turns, times are those of one call, and a floor is what its parts make."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from kernattn.bench import Gauge, Rates, Work, race, table
from kernattn.errors import BackendUnavailable, ParameterError

ENDLESS = 100.0


class Clock:
    """Time passes only by what is run."""

    now = 0.0
    turn = 5e-3
    long = 0.5
    settled = 0

    def settle(self, call: Callable[[], Any]) -> None:
        self.settled += 1
        call()

    def mark(self) -> float:
        return self.now

    def seconds(self, start: float, stop: float) -> float:
        return stop - start

    def takes(self, *seconds: float) -> Callable[[], None]:
        """A call of so many seconds, one after the other, the last one from then on."""
        left = list(seconds)

        def call() -> None:
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return call


def test_turns_alternate_and_times_are_those_of_one_call() -> None:
    clock, order = Clock(), []

    def contestant(name: str, seconds: float) -> None:
        order.append(name)
        clock.now += seconds

    a, b = 2.0**-9, 2.0**-6
    calls = {"a": lambda: contestant("a", a), "b": lambda: contestant("b", b)}
    first, second = race(calls, clock=clock, rounds=5, seconds=ENDLESS)
    assert first == {
        "contestant": "a",
        "median_ms": 1e3 * a,
        "low_ms": 1e3 * a,
        "high_ms": 1e3 * a,
        "turns": 5,
        "ratio": 1,
    }
    assert second["low_ms"] == 1e3 * b
    assert second["ratio"] == b / a
    assert "".join(order) == "aabb" + "aaabb" * 5  # one to settle, then two and one that fill a turn
    assert [row["turns"] for row in race(calls, clock=clock, rounds=50, seconds=0.0)] == [3, 3]


def test_quartiles_and_sets() -> None:
    clock = Clock()
    (row,) = race({"a": clock.takes(9.0, 9.0, 1.0, 2.0, 3.0, 4.0, 5.0)}, clock=clock, rounds=5, seconds=ENDLESS, sets=2)
    assert [row[key] for key in ("low_ms", "median_ms", "high_ms")] == [1000.0, 1500.0, 2000.0]


def test_a_long_call_settles_by_itself() -> None:
    """It is called once to settle at first, when nobody knows how long it takes, and once a turn after that."""
    clock, called = Clock(), []

    def contestant() -> None:
        called.append(1)
        clock.now += 0.5

    (row,) = race({"long": contestant}, clock=clock, rounds=5, seconds=ENDLESS)
    assert row["turns"] == 5
    assert len(called) == 2 + 5
    assert clock.settled == 1 + 5


def test_a_rival_that_fails_leaves_and_says_why() -> None:
    clock = Clock()

    def broken() -> None:
        raise RuntimeError("no such | kernel, /a/folder/of.cpp:1\nmore")

    rows = race({"ours": clock.takes(0.1), "rival": broken}, clock=clock, rounds=3, seconds=ENDLESS)
    assert [row["contestant"] for row in rows] == ["ours", "rival"]
    assert rows[1]["failed"] == "RuntimeError: no such / kernel, of.cpp:1"
    assert "| rival | RuntimeError: no such / kernel, of.cpp:1 |" in table(rows)
    for calls, rivals in (({"ours": broken}, None), ({"ours": clock.takes(0.1), "rival": broken}, ())):
        with pytest.raises(RuntimeError):
            race(calls, clock=clock, rounds=3, seconds=ENDLESS, rivals=rivals)


def test_a_rival_that_fails_after_some_turns_leaves_too() -> None:
    clock, called = Clock(), []

    def weak() -> None:
        called.append(1)
        clock.now += 1.0
        if len(called) > 4:
            raise RuntimeError("worn out")

    rows = race({"ours": clock.takes(1.0), "rival": weak}, clock=clock, rounds=5, seconds=ENDLESS)
    assert rows[0]["turns"] == 5
    assert rows[1] == {"contestant": "rival", "failed": "RuntimeError: worn out"}
    assert len(called) == 5


def test_who_runs_out_of_memory_leaves() -> None:
    class OutOfMemoryError(RuntimeError):
        pass

    clock = Clock()

    def greedy(error: type[Exception]) -> None:
        raise error

    calls = {"g": lambda: greedy(OutOfMemoryError), "h": lambda: greedy(MemoryError), "m": clock.takes(1.0)}
    rows = race(calls, clock=clock, rounds=3, seconds=ENDLESS, rivals=())
    assert {row["contestant"]: row.get("failed") for row in rows} == {
        "m": None,
        "g": "out of memory",
        "h": "out of memory",
    }
    assert not any("ratio" in row for row in rows)  # the first has no time
    assert clock.settled == 3 + 3


def test_a_floor_is_the_longer_of_traffic_and_arithmetic() -> None:
    work = Work(bytes=4.0, flops=20.0, functions=5.0)
    floors = Rates(bytes=2.0, flops=10.0, functions=5.0).floors(work)
    assert [floors[f"{part}_floor_ms"] for part in ("traffic", "product", "function")] == [2000.0, 2000.0, 1000.0]
    assert floors["floor_ms"] == 3000.0
    assert floors["parts_ms"] == 5000.0
    other = Rates(bytes=1.0, flops=10.0).floors(work)
    assert other["floor_ms"] == 4000.0
    assert "functions_per_second" not in other


def test_times_over_their_floors() -> None:
    clock, rates = Clock(), Rates(bytes=2.0, flops=10.0)
    calls = {"a": clock.takes(6.0), "b": clock.takes(6.0)}
    works = {"b": Work(flops=40.0)}
    a, b = race(calls, Work(bytes=4.0, flops=10.0), works=works, rates=rates, clock=clock, rounds=3, seconds=ENDLESS)
    assert [a[f"over_{bound}"] for bound in ("floor", "parts", "traffic")] == [3.0, 2.0, 3.0]
    assert b["over_floor"] == 1.5
    assert "over_traffic" not in b
    assert "| b | 6000 (6000–6000) | 1.00 | 1.50 | 1.50 |" in table([a, b])


def test_gauges_take_turns_and_count_at_their_low_quartile() -> None:
    """A gauge that was slowed down in some turns lowers no floor."""
    clock, order = Clock(), []
    slowed = clock.takes(1.0, 1.0, 8.0, 2.0, 2.0, 2.0, 8.0)
    gauges = {"bytes": Gauge(lambda: (order.append("g"), slowed()), 6.0), "flops": Gauge(clock.takes(4.0), 8.0)}
    calls = {"a": lambda: (order.append("a"), clock.takes(3.0)())}
    (row,) = race(calls, Work(bytes=6.0), rates=gauges, clock=clock, rounds=5, seconds=ENDLESS)
    assert (row["copy_bytes_per_second"], row["product_flops_per_second"]) == (3.0, 2.0)
    assert row["over_floor"] == 1.5
    assert "".join(order).endswith("ga" * 5)


@pytest.mark.parametrize(
    ("calls", "rounds", "word"),
    [({}, 3, "names to callables"), ([print], 3, "names to"), ({"a": 1}, 3, "names to"), ({"a": print}, 0, "rounds")],
)
def test_what_is_refused(calls: Any, rounds: int, word: str) -> None:
    with pytest.raises(ParameterError, match=word):
        race(calls, rounds=rounds)


def test_floors_of_this_machine_need_its_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernattn.bench._race.missing", lambda backend: "numba is not installed")
    with pytest.raises(BackendUnavailable, match="numba is not installed"):
        race({"a": lambda: None}, Work(bytes=1.0))


def test_a_race_without_work_needs_no_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    (row,) = race({"a": lambda: None}, rounds=1)
    assert "floor_ms" not in row
