"""Figures of a sweep of one's own: a figure for each field, its axes, panels and numbers."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from kernattn.cli import main
from kernattn.errors import ParameterError
from kernattn.studies import (
    Stop,
    Sweep,
    figures,
    plot,
    read_records,
    run,
)
from kernattn.studies._panels import thin_ticks, write_numbers, write_short_logs
from kernattn.studies._presets.draw import draw_figure, write_figures
from kernattn.studies._presets.folder import Study
from kernattn.studies._presets.plot import _chosen
from kernattn.studies._presets.preset import Figure as Panels
from kernattn.studies._records import select

pytest.importorskip("matplotlib")


CONFIG = {"axes": {"by": ["a", "b", "c"]}, "seed": 0, "kernattn": "0"}


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """Return the folder of a sweep of one's own: a number and a vector, with what is predicted of the number."""
    folder = tmp_path_factory.mktemp("mine")

    def trial(cell, rng):
        return {"error": rng.random() / cell["m"], "curve": rng.random(3)}

    axes = {"map": ("a", "b"), "m": (8, 16, 128), "flag": (True, False), "one": (1,)}
    predicted = lambda cell: {"error_predicted": 0.5 / cell["m"]}  # noqa: E731
    run(Sweep("mine", axes, trial, facts=predicted, along={"t": (3.0, 1.0, 2.0)}, stop=Stop(draws=8)), folder)
    return folder


def test_a_sweep_of_ones_own_has_a_figure_for_each_field(mine, tmp_path):
    assert [file.name for file in figures(mine, out=tmp_path, formats="svg")] == ["error.svg", "curve.svg"]
    (ax,) = plot(mine, "error").axes
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xscale(), ax.get_yscale()) == ("m", "error", "log", "log")
    labels = [f"map {name}, flag {flag}" for name in "ab" for flag in (True, False)]
    assert ax.get_legend_handles_labels()[1] == labels + ["predicted"] * 4
    record = select(read_records(mine), map="b", m=16, flag=False)[0]
    assert tuple(ax.lines[3].get_xydata()[1]) == (16, record["error"])
    (ax,) = plot(mine, "curve", map="a", m=[8], flag=["False"]).axes
    first = select(read_records(mine), map="a", m=8, flag=False)[0]
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), sorted(zip(first["t"], first["curve"], strict=True)))


def test_axes_of_ones_own_figures_are_chosen(mine, tmp_path, capsys):
    panels = plot(mine, "error", across="map", by="m").axes
    assert [panel.get_title(loc="left") for panel in panels] == ["m = 8", "m = 16", "m = 128"]
    assert [label.get_text() for label in panels[0].get_xticklabels()] == ["a", "b"]
    words = ["figures", str(mine), "error", "--formats", "svg", "--across", "m", "--by", "map", "--out", str(tmp_path)]
    assert main([*words, "--where", "m=8,16", "flag=True"]) == 0
    assert "m 8, 16; flag True" in (tmp_path / "error.svg").read_text(encoding="utf-8")
    capsys.readouterr()
    for given, message in (
        (["--by", "n"], "by must be one of map, m, flag"),
        (["--where", "m=8,9"], "m must be one of 8, 16, 128, which the records have; got 9"),
    ):
        assert main(["figures", str(mine), *given]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(ParameterError, match="by must be one of map, flag"):
        figures(mine, across="m", by="m")


def test_an_axis_of_one_factor_is_logarithmic(tmp_path):
    for values, scale in (
        ((8, 16, 32), "log"),
        ((8, 16, 24), "linear"),
        ((8, 16), "linear"),
        ((0, 1, 2), "linear"),
        ((1, 10**30), "log"),
    ):
        folder = tmp_path / "-".join(map(str, values))
        run(Sweep("mine", {"m": values}, lambda cell, rng: {"mean": rng.random()}, stop=Stop(draws=5)), folder)
        assert plot(folder, "mean").axes[0].get_xscale() == scale


def test_figures_are_named_by_words_that_stand_apart_or_with_commas(mine, tmp_path, capsys):
    for words in (["error,curve", "--formats", "png,svg"], ["--formats", "png", "svg", "--only", "error", "curve"]):
        assert main(["figures", str(mine), *words, "--out", str(tmp_path)]) == 0
        found = [Path(line).name for line in capsys.readouterr().out.split()]
        assert found == ["error.png", "error.svg", "curve.png", "curve.svg"]
    assert main(["figures", str(mine), "--only", "nothing"]) == 2
    assert "only must be one of error, curve; got 'nothing'" in capsys.readouterr().err


def test_records_that_no_figure_has_are_told(mine):
    with pytest.raises(ParameterError, match=r"where takes axes of mine, map, m, flag, one; got 'mm'"):
        plot(mine, "error", mm=8)
    axes = {"a": (1, 2), "b": (1, 2)}
    study = Study(mine, "own", None, {"axes": axes}, [{"a": 1, "b": 1}, {"a": 2, "b": 2}])
    with pytest.raises(ParameterError, match=r"no record has all of a = 1, b = 2 or 3$"):
        _chosen(study._replace(records=[*study.records, {"a": 2, "b": 3}]), {"a": 1, "b": [2, 3]})
    with pytest.raises(ParameterError, match=r"a must be one of 0, 1, .*, 19 and 5 others, which .*; got -1"):
        _chosen(study._replace(records=[{"a": i, "b": 1} for i in range(25)]), {"a": -1})


def test_paired_differences_are_drawn_about_what_they_are_taken_from(tmp_path):
    pairs = {"paired": ("map",), "against": {"map": "a"}}
    measure = lambda cell, rng: {"error": rng.random() + (cell["map"] == "b")}  # noqa: E731
    run(Sweep("pairs", {"map": ("a", "b"), "m": (8, 16)}, measure, stop=Stop(draws=8), **pairs), tmp_path)
    (file,) = figures(tmp_path, "error_difference", formats="svg")
    assert "error less that of map a" in file.read_text(encoding="utf-8")
    (ax,) = plot(tmp_path, "error_difference").axes
    assert ax.get_legend_handles_labels()[1] == ["map b", "map a"]
    line, level = ax.lines
    np.testing.assert_allclose(line.get_xydata(), [[8, 1], [16, 1]])
    assert set(level.get_ydata()) == {0.0}
    with pytest.raises(ParameterError, match="error_difference has nothing to show"):
        plot(tmp_path, "error_difference", map="a")


def test_panels_without_data_are_left_out(tmp_path):
    draw = lambda records, ax: (ax.axhline(1.0), ax.plot([1, 2], [r["x"] for r in records] * 2))  # noqa: E731
    figure = Panels("x", "of by", draw, by="by")
    records = [{"by": name, "x": value} for name, value in (("a", 1.0), ("b", np.nan), ("c", 2.0))]
    assert [ax.get_title(loc="left") for ax in draw_figure(figure, records).axes] == ["by = a", "by = c"]
    assert draw_figure(figure, records[1:2]) is None
    assert write_figures({"x": figure}, [], tmp_path, [{**records[1], "draws": 1}], CONFIG) == []
    with pytest.raises(ParameterError, match="x has nothing to show"):
        write_figures({"x": figure}, [], tmp_path, [{**records[1], "draws": 1}], CONFIG, ["x"])


@pytest.mark.parametrize(("labels", "kept"), [(range(9), 5), (range(4), 4)])
def test_numbers_along_an_axis_do_not_touch(labels, kept):
    ax = Figure().subplots()
    ax.plot([2**i for i in labels], [1.0 for _ in labels])
    ax.set_xscale("log")
    write_numbers(ax.xaxis, [2**i for i in labels])
    thin_ticks(ax, 1.9)
    texts = [label.get_text() for label in ax.get_xticklabels()]
    assert sum(map(bool, texts)) == kept
    assert texts[-1] == f"{2 ** labels[-1]}"


def test_words_along_an_axis_are_slanted_where_they_touch():
    for inches, angle in ((9.0, 0.0), (0.5, 30.0)):
        ax = Figure().subplots()
        ax.plot([0, 1], [0, 1])
        ax.set_xticks([0, 1], ["orthogonal", "independent"])
        thin_ticks(ax, inches)
        assert {label.get_rotation() for label in ax.get_xticklabels()} == {angle}
        assert [label.get_text() for label in ax.get_xticklabels()] == ["orthogonal", "independent"]


def test_a_short_logarithmic_axis_has_plain_numbers():
    ax = Figure().subplots()
    ax.plot([1, 2], [0.3, 0.9])
    ax.set(xscale="log", yscale="log", ylim=(0.25, 0.95))
    write_short_logs(ax)
    ax.figure.canvas.draw()
    texts = [label.get_text() for label in ax.get_yticklabels(which="both") if label.get_text()]
    assert set(texts) >= {"0.3", "0.6"}
    assert not any("times" in text for text in texts)


def test_a_short_axis_of_powers_of_two_has_all_its_numbers():
    ax = Figure().subplots()
    ax.plot([1, 8], [1, 8])
    ax.set_xscale("log", base=2)
    write_short_logs(ax)
    ax.figure.canvas.draw()
    assert {label.get_text() for label in ax.get_xticklabels()} >= {"1", "2", "4", "8"}


def test_a_figure_is_no_higher_than_a_page(tmp_path):
    """With its legend: four panels of a column are not, and with eight lines of a legend they are."""
    ways = [f"a way of measuring, number {i}" for i in range(8)]
    axes = {"m": (1, 2), "k": range(5), "way": ways}
    run(Sweep("tall", axes, lambda cell, rng: {"x": rng.random()}, stop=Stop(draws=3)), tmp_path)
    parts = figures(tmp_path, "x", size="column", formats="svg", by="k")
    assert [part.name for part in parts] == ["x-1.svg", "x-2.svg"]
    heights = [float(re.search(r'height="([0-9.]+)pt"', part.read_text())[1]) for part in parts]
    assert max(heights) <= 9 * 72
    with pytest.raises(ParameterError, match="x is higher than a page in the size column; choose some of k=0, k=1"):
        plot(tmp_path, "x", size="column", by="k")
    assert len(plot(tmp_path, "x", size="column", by="k", k=[1, 2, 4]).axes) == 3
