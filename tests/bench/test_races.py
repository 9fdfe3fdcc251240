"""Races: contestants take turns, times are those of one call, and a floor is what its parts make."""

from __future__ import annotations

import pytest

from kernattn.bench._races import Call, race
from kernattn.bench._rates import Gauge, Rates, Work, rates_of


class Clock:
    """Time passes only by what is run."""

    now = 0.0
    turn = 5e-3
    long = 0.5
    settled = 0

    def settle(self, call: Call) -> None:
        self.settled += 1
        call()

    def mark(self) -> float:
        return self.now

    def seconds(self, start: float, stop: float) -> float:
        return stop - start


def test_turns_alternate_and_times_are_those_of_one_call() -> None:
    clock, order = Clock(), []

    def contestant(name: str, seconds: float) -> None:
        order.append(name)
        clock.now += seconds

    a, b = 2.0**-9, 2.0**-6
    calls = {"a": lambda: contestant("a", a), "b": lambda: contestant("b", b)}
    times, failed = race(calls, clock, rounds=5, seconds=100.0)
    assert not failed
    assert times["a"].median == a
    assert times["b"].low == b
    assert {t.turns for t in times.values()} == {5}
    assert "".join(order) == "aabb" + "aaabb" * 5  # one to settle, then two and one that fill a turn
    stopped, _ = race(calls, clock, rounds=50, seconds=0.0)
    assert {t.turns for t in stopped.values()} == {3}


def test_a_long_call_settles_by_itself() -> None:
    """It is called once to settle at first, when nobody knows how long it takes, and once a turn after that."""
    clock, called = Clock(), []

    def contestant() -> None:
        called.append(1)
        clock.now += 0.5

    times, _ = race({"long": contestant}, clock, rounds=5, seconds=100.0)
    assert times["long"].turns == 5
    assert len(called) == 2 + 5
    assert clock.settled == 1 + 5


def test_a_rival_that_fails_leaves_and_says_why() -> None:
    clock = Clock()

    def broken() -> None:
        raise RuntimeError("no such | kernel, /a/folder/of.cpp:1\nmore")

    def sound() -> None:
        clock.now += 0.1

    times, failed = race({"ours": sound, "rival": broken}, clock, 3, 100.0, rivals=["rival"])
    assert list(times) == ["ours"]
    assert failed == {"rival": "RuntimeError: no such / kernel, of.cpp:1"}
    with pytest.raises(RuntimeError):
        race({"ours": broken}, clock, 3, 100.0, rivals=["rival"])


def test_a_rival_that_fails_after_some_turns_leaves_too() -> None:
    clock, called = Clock(), []

    def weak() -> None:
        called.append(1)
        clock.now += 1.0
        if len(called) > 4:
            raise RuntimeError("worn out")

    def sound() -> None:
        clock.now += 1.0

    times, failed = race({"ours": sound, "rival": weak}, clock, 5, 100.0, rivals=["rival"])
    assert {name: time.turns for name, time in times.items()} == {"ours": 5}
    assert failed == {"rival": "RuntimeError: worn out"}
    assert len(called) == 5


def test_who_runs_out_of_memory_leaves() -> None:
    class OutOfMemoryError(RuntimeError):
        pass

    clock = Clock()

    def greedy(error: type[Exception]) -> None:
        raise error

    def modest() -> None:
        clock.now += 1.0

    calls = {"g": lambda: greedy(OutOfMemoryError), "h": lambda: greedy(MemoryError), "m": modest}
    times, failed = race(calls, clock, 3, 100.0)
    assert list(times) == ["m"]
    assert failed == {"g": "out of memory", "h": "out of memory"}
    assert clock.settled == 3 + 3
    with pytest.raises(RuntimeError):
        race({"b": lambda: greedy(RuntimeError)}, clock, 3, 100.0)


def test_a_floor_is_the_longer_of_traffic_and_arithmetic() -> None:
    work = Work(bytes=4.0, flops=20.0, functions=5.0)
    rates = Rates(bytes=2.0, flops=10.0, functions=5.0)
    assert rates.parts(work) == (2.0, 2.0, 1.0)
    assert rates.floor(work) == 3.0
    assert Rates(bytes=1.0, flops=10.0).floor(work) == 4.0
    assert rates.in_turn(work) == 5.0


def test_gauges_say_the_rates() -> None:
    gauges = {"bytes": Gauge(lambda: None, 6.0), "flops": Gauge(lambda: None, 8.0)}
    assert rates_of(gauges, {"bytes": 2.0, "flops": 4.0}) == Rates(bytes=3.0, flops=2.0)
