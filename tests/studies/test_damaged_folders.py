"""Folders of a study that a hand or a program has edited, and sweeps whose cells measure different things."""

import json

import pytest

from kernattn.errors import FileFormatError
from kernattn.studies import Stop, Sweep, figures, plot, report, run
from kernattn.studies._records import seal

pytest.importorskip("matplotlib")


def trial(cell, rng):
    return {"error": rng.normal(1, 0.1), **({"curve": rng.normal(size=3)} if cell["m"] > 8 else {"few": rng.normal()})}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("mine")
    axes = {"m": (8, 16, 32), "who": ("a", "b")}
    run(Sweep("mine", axes=axes, along={"t": (1, 2, 3)}, trial=trial, stop=Stop(draws=6)), place)
    return place


def test_cells_may_measure_different_fields(folder, tmp_path):
    """What a cell did not measure is missing from a figure, and no other version has measured it."""
    files = figures(folder, out=tmp_path, formats="svg")
    assert [file.name for file in files] == ["error.svg", "few.svg", "curve.svg"]
    assert plot(folder, "curve").axes
    assert "another version" not in report(folder, tmp_path / "report.html").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"axes": 3}, r"config\.json must have a list of values for each axis as axes; got 3"),
        ({"axes": {}}, "as axes"),
        ({"axes": {"m": 8}}, "as axes"),
        ({"along": None}, "as along"),
        ({"paired": [1]}, "a list of axes as paired"),
        ({"cells": "6"}, "a positive integer as cells; got '6'"),
        ({"versions": []}, "as versions"),
        ({"sweep": 3}, "as sweep"),
        ({"study": None}, "a name as study"),
        ({"axes": {"m": [8, 16], "who": ["a", "b"]}}, r"the axis m of config\.json, one of \[8, 16\]; got 32"),
        ({"axes": {"n": [8]}}, "the axis n"),
    ],
    ids=str,
)
def test_an_edited_configuration_is_refused(folder, tmp_path, change, message):
    config = json.loads((folder / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "records.jsonl").write_bytes((folder / "records.jsonl").read_bytes())
    for call in (report, figures, lambda path: plot(path, "error")):
        with pytest.raises(FileFormatError, match=message):
            call(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"error": "much"}, "must hold in error finite numbers or lists of numbers; got 'much'"),
        ({"error_low": [1.0]}, "in error_low"),
        ({"error": {}}, "in error"),
        ({"error": 10**400}, "in error"),
        ({"note": {}}, "in note finite numbers, words or lists"),
        ({"m": 9}, "the axis m"),
        ({"draws": "6"}, "with draws and stopped"),
    ],
    ids=lambda given: str(given)[:40],
)
def test_edited_records_are_refused_though_they_are_sealed(folder, tmp_path, change, message):
    (tmp_path / "config.json").write_bytes((folder / "config.json").read_bytes())
    first, *rest = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    del first["checksum"]
    lines = [seal(first | change), *rest]
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    for call in (report, figures, lambda path: plot(path, "error")):
        with pytest.raises(FileFormatError, match=message):
            call(tmp_path)
