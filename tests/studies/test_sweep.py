"""Sweeps: cells by their content, common random numbers, when a cell stops, and what is refused before any work."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kernattn
from dice import cast, sweep, trial
from kernattn.errors import ParameterError
from kernattn.studies import Cell, Stop, Sweep, TrialFailed, medians, run


def test_cells_are_the_product_and_what_keep_leaves_of_it():
    cells = cast(faces=(6, 8, 20), keep=lambda cell: cell["faces"] != 8).cells()
    assert [(cell["faces"], cell["how"], cell["dice"]) for cell in cells] == [
        (faces, how, dice) for faces in (6, 20) for how in ("left", "right") for dice in (3, 5)
    ]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=5, unique=True))
def test_values_that_differ_are_cells_that_differ(scales):
    """Also where they print alike."""
    cells = Sweep("s", {"scale": scales}, trial).cells()
    assert len({cell.name for cell in cells}) == len(scales)
    assert [cell["scale"] for cell in cells] == scales


def test_a_name_depends_on_all_that_a_record_depends_on():
    others = [
        cast(seed=1),
        cast(version=2),
        cast(draws=5),
        replace(sweep, paired=()),
        Sweep("other", sweep.axes, trial, along=sweep.along, stop=sweep.stop),
        Sweep("dice", sweep.axes, trial, along={"end": (0.0, 2.0)}, stop=sweep.stop),
    ]
    names = [each.cells()[0].name for each in [sweep, *others]]
    assert len(set(names)) == len(names)
    assert cast(faces=(4, 6)).cells()[4].name == names[0]


def test_numbers_of_numpy_are_plain():
    one = cast(seed=np.int64(1), version=np.uint8(2), draws=np.int32(3))
    assert one.cells()[0].name == cast(seed=1, version=2, draws=3).cells()[0].name
    exact, lossy = (Stop(8, precision=kind(0.25), most=np.int16(9)) for kind in (float, np.float32))
    assert exact == lossy


def test_paired_axes_share_random_numbers():
    left, right, other = (
        sweep.cell({"faces": 6, "how": how, "dice": d}) for how, d in (("left", 3), ("right", 3), ("left", 5))
    )
    numbers = [sweep.generator(cell, draw).random(4) for cell in (left, right, other) for draw in (0, 1)]
    np.testing.assert_array_equal(numbers[0], numbers[2])
    np.testing.assert_array_equal(numbers[1], numbers[3])
    assert len({each[0] for each in numbers}) == 4


def test_streams_are_those_of_ever():
    """Of the SHA-256 of a text, the first 128 bits as four numbers."""
    for how in ("left", "right"):
        cell = sweep.cell({"faces": 6, "how": how, "dice": 3})
        name = '["dice",{"dice":3,"faces":6}]'  # what is paired, and what runs along, is no part of it
        digest = hashlib.sha256(name.encode()).hexdigest()
        key = [int(digest[at : at + 8], 16) for at in range(0, 32, 8)]
        assert sweep.streams(cell) == {"entropy": 0, "spawn_key": key}
        assert sweep.generator(cell, 0).integers(2**32, size=2).tolist() == [3408417359, 1956140401]


def test_names_of_cells_are_those_of_ever():
    """Records are found again by them: `printf '{"cell":{"faces":6},"seed":0,"study":"dice"}' | sha256sum`."""
    assert Cell({"faces": 6}, {"study": "dice", "seed": 0}).name == "0996e15a1ae5d0dc"
    setting = {
        "study": "dice", "version": 1, "kernattn": kernattn.__version__, "seed": 0, "paired": ["how"],
        "stop": [4, None, None, 64],
    }  # fmt: skip
    values = {"faces": 6, "how": "left", "dice": 3}
    assert sweep.cell(values).name == Cell(values | {"end": (0.0, 1.0)}, setting).name


def test_record(tmp_path):
    record = run(sweep, tmp_path)[0]
    rows = [trial({"faces": 6, "dice": 3}, np.random.default_rng(_seed(record, draw))) for draw in range(4)]
    assert record["mean"] == pytest.approx(np.mean([row["mean"] for row in rows]), rel=1e-7)
    np.testing.assert_allclose(record["ordered"], np.mean([row["ordered"] for row in rows], axis=0), rtol=1e-7)
    assert record["mean_low"] < record["mean"] < record["mean_high"]
    assert (record["end"], record["expected"]) == ([0.0, 1.0], 3.5)
    assert (record["draws"], record["stopped"], record["study"], record["version"]) == (4, "draws", "dice", 1)


def _seed(record, draw):
    return np.random.SeedSequence(record["seed"]["entropy"], spawn_key=(*record["seed"]["spawn_key"], draw))


def noisy(settled, **stop):
    """A sweep whose trials spread by 1 about 10, and by 0.01."""
    axes = {"spread": (1.0, 0.01)}
    return Sweep(
        "noisy",
        axes,
        lambda cell, rng: {"value": 10 + cell["spread"] * rng.standard_normal(2)},
        lambda cell: {"settled": np.asarray(settled)},
        along={"side": (0.0, 1.0)},
        stop=Stop(**stop),
    )


def test_stopping_says_why(tmp_path):
    wide, narrow = run(noisy((True, True), draws=8, precision=0.02, most=500), tmp_path)
    assert (narrow["draws"], narrow["stopped"]) == (8, "precision")
    assert wide["stopped"] == "precision"
    assert 32 <= wide["draws"] <= 500
    for side in (0, 1):
        assert wide["value_high"][side] - wide["value"][side] <= 0.02 * wide["value"][side]
    wide, _ = run(noisy((True, True), draws=8, precision=1e-4, most=9), tmp_path)
    assert (wide["draws"], wide["stopped"]) == (9, "most")


def test_what_is_not_settled_has_no_interval_and_is_not_waited_for(tmp_path):
    for record in run(noisy((False, False), draws=8, precision=1e-9), tmp_path / "none"):
        assert (record["draws"], record["stopped"]) == (8, "unsettled")
        assert record["value_low"] == record["value_high"] == [None, None]
        assert None not in record["value"]
    for record in run(noisy((True, False), draws=8, precision=0.02, most=500), tmp_path / "half"):
        assert record["stopped"] == "precision"
        assert (record["value_low"][0], record["value_low"][1]) == (pytest.approx(10, rel=0.03), None)


@pytest.mark.parametrize(
    ("facts", "missing"),
    [
        ({"low_settled": False}, {"low"}),
        ({"settled": False, "high_settled": True}, {"low"}),
        ({"high_settled": False, "settled": True}, {"high"}),
        ({"low_settled": False, "high_settled": False}, {"low", "high"}),
    ],
    ids=lambda value: repr(sorted(value)),  # a set has no order
)
def test_a_field_may_be_unsettled_alone(facts, missing, tmp_path):
    axes, draw = {"a": (1,)}, lambda cell, rng: {"low": 1 + rng.random(), "high": 2 + rng.random()}
    for of in ("low", "high"):
        stop = Stop(8, precision=0.5, of=of)
        record = run(Sweep("two", axes, draw, lambda cell: facts, stop=stop), tmp_path / of)[0]
        assert record["stopped"] == ("unsettled" if of in missing else "precision")
        for name in ("low", "high"):
            assert {record[f"{name}_low"] is None, record[f"{name}_high"] is None} == {name in missing}


LAWS = {  # a redraw, its mean and its median
    "normal": (lambda rng: rng.standard_normal(), 0.0, 0.0),
    "exponential": (lambda rng: rng.exponential(), 1.0, np.log(2)),
    "log-normal": (lambda rng: np.exp(rng.standard_normal()), np.exp(0.5), 1.0),
    "long log-normal": (lambda rng: np.exp(2 * rng.standard_normal()), np.exp(2), 1.0),
}


@pytest.mark.statistical
@pytest.mark.parametrize(
    "law", [pytest.param(law, marks=pytest.mark.slow) if law == "log-normal" else law for law in LAWS]
)
def test_a_mean_that_few_redraws_carry_has_no_interval(law, tmp_path):
    """Of 300 means fewer than a tenth have an interval that misses; nearly all normal ones have one. Medians have."""
    draw, mean, median = LAWS[law]
    axes = {"a": range(300)}
    records = run(Sweep("means", axes, lambda cell, rng: {"x": draw(rng)}, stop=Stop(40)), tmp_path / "means")
    kept = [r for r in records if r["x_low"] is not None]
    assert all(r.get("x_settled", True) == (r in kept) for r in records)
    assert sum(not r["x_low"] <= mean <= r["x_high"] for r in kept) < 30
    if law == "normal":
        assert len(kept) > 290
    sweep = Sweep("medians", axes, lambda cell, rng: {"x": draw(rng)}, stop=Stop(40), reduce=medians)
    found = run(sweep, tmp_path / "medians")
    assert sum(r["x_low"] <= median <= r["x_high"] for r in found) > 0.92 * 300


def test_a_mean_that_few_redraws_carry_is_redrawn_on(tmp_path):
    """Facts that say where redraws settle keep their word; what is flat has an interval of no length."""
    axes = {"a": (1,)}

    def spike(cell, rng):
        return {"x": np.asarray([np.exp(3 * rng.standard_normal()), rng.random(), 1.0])}

    stop = Stop(16, precision=0.5, most=64)
    facts = {"x_settled": np.asarray([True, False, True])}
    sweep = Sweep("spike", axes, spike, lambda cell: facts, along={"end": (0.0, 1.0, 2.0)}, stop=stop, seed=3)
    (record,) = run(sweep, tmp_path)
    assert (record["draws"], record["stopped"]) == (64, "most")
    assert record["x_settled"] == [False, False, True]
    assert record["x_low"] == [None, None, 1.0]


@pytest.mark.parametrize("more", [{}, {"precision": 0.1}, {"precision": 0.1, "of": "x_low"}], ids=str)
def test_what_is_to_be_precise_must_be_there(more, tmp_path):
    measured = []

    def draw(cell, rng):
        measured.append(cell["a"])
        return {"x": rng.random()}

    stop = Stop(8, **{"of": "y", **more})
    with pytest.raises(
        TrialFailed, match=rf"^s, cell a = 1: Stop\(of='{stop.of}'\) needs the fields {stop.of}.*; redr"
    ):
        run(Sweep("s", {"a": (1, 2)}, draw, stop=stop), tmp_path)
    assert measured == [1] * 8


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Sweep("", {"a": (1,)}, trial), "name of a sweep must be a string; got ''"),
        (lambda: Sweep("s", {}, trial), "axes must have the values of one axis at least, .*; got {}"),
        (lambda: Sweep("s", {"a": (1,)}, lambda cell: {}), r"trial must take \(cell, rng\); too many positional"),
        (lambda: Sweep("s", {"a": (1,)}, trial, facts=object), r"facts must take \(cell\); too many positional"),
        (lambda: Sweep("s", {"a": ()}, trial), "a must be a list of at least one value"),
        (lambda: Sweep("s", {"a": "left"}, trial), "a must be a list of at least one value; got 'left'"),
        (lambda: Sweep("s", {"a": (1, 1)}, trial), "a must not repeat a value; got 1, 1"),
        (lambda: Sweep("s", {"a": (1, True)}, trial), "a must not repeat a value; got 1, True"),
        (lambda: Sweep("s", {"a": (10**400,)}, trial), "a must hold strings, .*; got 10"),
        (lambda: Sweep("s", {"a": (np.nan,)}, trial), "a must hold strings, .*; got nan"),
        (lambda: Sweep("s", {"a": ([],)}, trial), r"a must hold strings, .*; got \[\]"),
        (lambda: Sweep("s", {"seed": (1,)}, trial), "none of study, cell, .*; got 'seed': redraws stand for seeds"),
        (lambda: Sweep("s", {"a_seconds": (1,)}, trial), "not end in 'seconds'"),
        (lambda: Sweep("s", {"a": (1,)}, trial, along={"a": (1.0,)}), r"both have \['a'\]"),
        (lambda: Sweep("s", {"a": (1,)}, trial, paired=("b",)), r"paired must be a tuple of axes, a; got \('b',\)"),
        (lambda: Sweep("s", {"a": (1,)}, None), "trial must be a function; got None"),
        (lambda: Sweep("s", {"a": (1,)}, trial, seed=-1), "seed must be an integer, at least 0; got -1"),
        (lambda: run(cast(reduce=medians, draws=5), "never"), "draws must be an integer, at least 6; got 5"),
        (lambda: Stop(1), "draws must be an integer, at least 2; got 1"),
        (lambda: Stop(9, most=8), "most must be at least draws = 9; got 8"),
        (lambda: Stop(7, precision=0.1), "precision needs draws of at least 8, .*; got 7"),
        (lambda: Stop(of=3), "of must be the name of a field; got 3"),
        (lambda: Stop(of=""), "of must be the name of a field; got ''"),
        (lambda: run(cast(), "never", settings={"faces": [4]}), "settings are for a sweep that is named"),
        (lambda: Stop(precision=1.0), "precision must lie strictly between 0 and 1; got 1.0"),
        (lambda: run(Sweep("s", {"a": (1,)}, trial, keep=lambda cell: False), "never"), "keeps no cell"),
        (lambda: run(3, "never"), "sweep must be a Sweep or its name, 'module:object'; got 3"),
        (lambda: run("dice", "never"), "named as module:object; got 'dice'"),
        (lambda: run("dice:nothing", "never"), "dice:nothing is not there"),
        (lambda: run("no_such_module:sweep", "never"), "No module named 'no_such_module'"),
        (lambda: run("dice:facts", "never", settings={"cell": {"faces": 1}}), "dice:facts must be a Sweep, or a func"),
        (lambda: run(cast(), "never", workers=1), "worker processes find a sweep by its name, and dice has none"),
    ],
)
def test_refusals(made, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ParameterError, match=message):
        made()
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    ("trial", "message"),
    [
        (lambda cell, rng: 3, "must return a mapping of fields; got 3"),
        (lambda cell, rng: {}, "must return a mapping of fields"),
        (lambda cell, rng: {"x": np.ones(3)}, r"x must be a number, or numbers of the shape \(\) that `along` gives"),
        (lambda cell, rng: {"seed": 1.0}, "a field must not be called seed"),
        (lambda cell, rng: {"a": 1.0}, "a field must not be called a"),
        (lambda cell, rng: {"x": 1j}, r"must return real numbers by name; got 'x': 1j"),
        (lambda cell, rng: {3: 1.0}, "must return real numbers by name; got 3: 1.0"),
        (lambda cell, rng: {"x": 1.0, "x_low": 1.0}, "must not return x_low, which are the ends of an interval"),
        (lambda cell, rng: {"same": 1.0}, "facts and trial both return same"),
        (lambda cell, rng: {"x" if rng.random() < 0.5 else "y": 1.0}, "every trial must return the fields"),
        (lambda cell, rng: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_trials_that_fail_are_named(trial, message, tmp_path):
    with pytest.raises(TrialFailed, match=f"^s, cell a = 1: .*{message}"):
        run(Sweep("s", {"a": (1,)}, trial, lambda cell: {"same": 0.0}), tmp_path)


def test_paired_differences_have_intervals_of_their_own(tmp_path):
    """Both methods see one noise of size 1, which their difference lacks."""

    def trial(cell, rng):
        common, own = rng.standard_normal(2)
        return {"error": common + (0.1 + 0.01 * own if cell["method"] == "b" else 0.0)}

    axes = {"method": ("a", "b"), "m": (1, 2)}
    asked = {"paired": ("method",), "against": {"method": "a"}, "stop": Stop(draws=32)}
    records = run(Sweep("two", axes, trial, **asked), tmp_path)
    plain = run(Sweep("two", axes, trial, paired=("method",), stop=Stop(draws=32)), tmp_path / "plain")
    assert [each["error"] for each in records] == [each["error"] for each in plain]
    assert records[0]["cell"] != plain[0]["cell"]
    for record in records:
        wanted = 0.1 * (record["method"] == "b")
        assert record["error_difference"] == pytest.approx(wanted, abs=1e-2)
        assert record["error_difference_high"] - record["error_difference_low"] < 0.02
        assert record["error_high"] - record["error_low"] > 0.5


@pytest.mark.parametrize("against", [{"m": 1}, {"method": "c"}, {"other": 1}, "a", None])
def test_a_comparison_with_what_is_not_paired_is_refused(against):
    axes = {"method": ("a", "b"), "m": (1, 2)}
    with pytest.raises(ParameterError, match="against must give values of paired axes, method; got"):
        Sweep("two", axes, lambda cell, rng: {"x": 1.0}, paired=("method",), against=against)
