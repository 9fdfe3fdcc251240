"""The report of a study: one page that loads nothing and holds everything; figures in the sizes of a paper."""

import json
import re
import shlex
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from pkgutil import resolve_name
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from kernattn.cli import main
from kernattn.cli._main import parser
from kernattn.errors import FileFormatError, ParameterError
from kernattn.studies import (
    PRESETS,
    Stop,
    Sweep,
    figures,
    plot,
    read_records,
    report,
    run,
    study,
)
from kernattn.studies._records import seal
from kernattn.studies._report.citations import cited_works
from kernattn.studies._report.commands import study_command
from kernattn.studies._report.facts import calibration, fields_without_intervals
from kernattn.studies._report.page import mathml

pytest.importorskip("matplotlib")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--dump-dom"),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tokens_file):
    """A folder of two studies; what is drawn of them is asked for."""
    whole = tmp_path_factory.mktemp("studies")
    axes = {"estimator": ["positive", "trigonometric"], "m": [4]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernattn.studies._presets.draw.write_figures", lambda *_: [])
        study("softmax-kernel", whole / "softmax-kernel", quick=True, axes={"d": [4]})
        study("attention", whole / "attention", seed=3, draws=8, axes=axes, data=tokens_file)
    return whole


class Page(HTMLParser):
    """Ids, what is loaded, the figures, and the text of elements with an id."""

    def __init__(self, text):
        super().__init__()
        self.ids, self.loaded, self.figures, self.open, self.texts, self.tags = [], [], [], [], {}, []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append(tag)
        self.open.append(given.get("id"))
        if "id" in given:
            self.ids.append(given["id"])
            self.texts[given["id"]] = ""
        if tag == "figure":
            self.figures.append(given["id"])
        links = (given.get(name, "#") for name in ("src", "href", "xlink:href", "data", "action", "srcset", "poster"))
        self.loaded += [link for link in links if not link.startswith("#")]
        if tag in ("link", "iframe", "img", "object", "base"):
            self.loaded.append(tag)
        if tag in ("meta", "br", "img", "input", "link", "hr"):
            self.open.pop()

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag):
        self.open.pop()

    def handle_data(self, data):
        for name in self.open:
            if name is not None:
                self.texts[name] += data


def test_page_loads_nothing_and_holds_all(folder):
    text = report(folder).read_text(encoding="utf-8")
    page = Page(text)
    assert page.loaded == []
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert "@import" not in text
    assert len(set(page.ids)) == len(page.ids)
    assert set(re.findall(r"url\(#([^)]*)\)", text)) <= set(page.ids)
    assert page.open == []
    for name in ("softmax-kernel", "attention"):
        assert {f"{name}-figure-{stem}" for stem in PRESETS[name].figures} <= set(page.figures)
        records = read_records(folder / name)
        embedded = page.texts[f"{name}-records-jsonl"]
        assert [json.loads(line) for line in embedded.splitlines()] == records
        for verdict in PRESETS[name].sentences(records):
            assert verdict in page.texts[name]
    assert page.tags.count("math") >= 2
    assert page.texts["attention"].count("Rethinking attention with Performers") == 1
    assert "hash of all but times" in page.texts["attention"]
    order = [page.texts["softmax-kernel"].index(word) for word in ("Verdicts", "What is not settled", "Figures")]
    assert order == sorted(order)
    assert "no interval" in page.texts["softmax-kernel"]


def _exact(record):
    """Which angles the estimator has no error at: 0 and 180 degrees."""
    return np.asarray(record["angle"]) == (0.0 if record["estimator"] == "trigonometric" else 180.0)


def test_what_is_told_is_what_records_say(folder):
    """Intervals that hold theirs, and points without one, counted anew."""
    records = read_records(folder / "softmax-kernel")
    low, high, theory, settled = (
        np.concatenate([np.ravel(np.asarray(r[f"variance{end}"], float)) for r in records])
        for end in ("_low", "_high", "_predicted", "_settled")
    )
    exact = np.concatenate([np.repeat(_exact(r), len(r["length"])) for r in records])
    inside = (low <= theory) & (theory <= high) & ~exact
    (variance,) = calibration(records, {})
    assert variance.field == "variance"
    assert variance.inside == inside.sum()
    found = {each.field: each for each in fields_without_intervals(records, "estimator")}
    assert found["variance"].without == np.sum(settled == 0) > 0
    assert found["variance"].total == theory.size
    assert sum(without for without, _ in found["variance"].by.values()) == found["variance"].without
    own = [{"x": 1.0, "x_low": 0.5, "x_high": 1.5}, {"x": 3.0, "x_low": 2.5, "x_high": 3.5}, {"x": 3.0, "x_low": None}]
    assert [tuple(each) for each in calibration(own, {"x": 1.0})] == [("x", 1, 2)]


def test_commands_make_the_same_study_again(folder):
    config = json.loads((folder / "attention" / "config.json").read_text())
    words = shlex.split(study_command(config, folder / "attention"))
    assert words[0] == "kernattn"
    given = parser().parse_args(words[1:])
    assert (given.draws, given.seed) == (8, 3)
    assert given.set == [("estimator", ["positive", "trigonometric"]), ("m", [4])]
    config = json.loads((folder / "softmax-kernel" / "config.json").read_text())
    given = parser().parse_args(shlex.split(study_command(config, folder))[1:])
    assert (given.quick, given.set, given.seed) == (True, [("d", [4])], 0)


def test_a_folder_of_the_version_before_has_its_command():
    """Attention studies of kernattn 0.2 recorded a field for each axis."""
    settings = {"data": None, "sources": ["china"], "scales": [2.0], "estimators": ["positive"], "projections": ["iid"]}
    settings |= {"num_features": [4, 8], "draws": 6, "precision": None, "queries": 9, "keys": 64, "seed": 3}
    words = shlex.split(study_command({"study": "attention", "settings": settings}, Path("old")))
    given = parser().parse_args(words[1:])
    assert (given.draws, given.seed, given.quick) == (6, 3, False)
    assert dict(given.set) == {
        "source": ["china"], "scale": [2.0], "estimator": ["positive"], "projection": ["iid"],
        "m": [4, 8], "queries": [9], "keys": [64],
    }  # fmt: skip
    axes = dict(given.set)
    sweep = resolve_name(PRESETS["attention"].sweep)
    new, old = sweep(draws=6, seed=3, axes=axes), sweep(**settings)
    assert [cell.name for cell in new.cells()] == [cell.name for cell in old.cells()]


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_in_a_browser(folder, tmp_path):
    """The page opens, and a click sorts a table, numbers as numbers."""
    script = """<script>
      const table = [...document.querySelectorAll("table")].find(t => t.rows[0].textContent.includes("draws"));
      const heads = [...table.rows[0].cells], column = heads.findIndex(h => h.textContent === "variance");
      const values = () => [...table.tBodies[0].rows].map(r => Number(r.cells[column].dataset.value));
      heads[column].firstChild.click();
      const up = values();
      heads[column].firstChild.click();
      const down = values();
      const sorted = up.every((v, i) => !i || up[i - 1] <= v) && down.every((v, i) => !i || down[i - 1] >= v);
      document.title = `${up.length} ${sorted} ${document.querySelectorAll("figure svg").length}`;
    </script>"""
    text = report(folder / "softmax-kernel", tmp_path / "r.html").read_text(encoding="utf-8")
    page = tmp_path / "page.html"
    page.write_text(text.replace("</body>", f"{script}</body>"))
    words = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()]
    dom = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120).stdout
    assert re.search("<title>(.*?)</title>", dom)[1] == f"{13 * 4 * 4} true {len(PRESETS['softmax-kernel'].figures)}"


def test_figures_in_the_sizes_of_a_page(folder, tmp_path, capsys):
    for size, inches in (("page", 7.0), ("column", 3.4)):
        words = ["figures", str(folder / "softmax-kernel"), "ratio", "--size", size, "--formats", "pdf"]
        assert main([*words, "--out", str(tmp_path)]) == 0
        box = re.search(rb"/MediaBox \[ ?0 0 ([0-9.]+) ", (tmp_path / "ratio.pdf").read_bytes())
        assert float(box[1]) == pytest.approx(72 * inches, abs=0.1)
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / "ratio.pdf")] * 2
    (file,) = figures(folder / "softmax-kernel", "ratio", tmp_path, formats="svg")
    text, shown = file.read_text(), PRESETS["softmax-kernel"]
    assert shown.figures["ratio"].findings(shown.verdicts(read_records(folder / "softmax-kernel"))) in text
    assert "projection iid, orthogonal; d 4. 4 cells of 200 redraws, seed 0" in text


def test_a_panel_goes_where_it_is_told(folder):
    ax = plot(folder / "softmax-kernel", "ratio").axes[0]
    assert plot(folder / "softmax-kernel", "ratio", ax=ax, d=4) is ax.figure
    with pytest.raises(ParameterError, match="variance has a panel for each of estimator='positive', estimator='trig"):
        plot(folder / "attention", "variance", ax=ax)
    with pytest.raises(ParameterError, match="d must be one of 4, which the records have; got 5"):
        plot(folder / "softmax-kernel", "ratio", d=5)
    with pytest.raises(ParameterError, match="across and by are for a sweep of your own"):
        figures(folder / "softmax-kernel", by="d")
    with pytest.raises(ParameterError, match=r"where takes axes of softmax-kernel, .*; got 'e'"):
        plot(folder / "softmax-kernel", "ratio", e=5)


def test_refusals_are_one_line(folder, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for words, message in (
        (["report", str(tmp_path)], "holds no study"),
        (["report", str(folder), "--out", str(tmp_path / "file" / "r.html")], "out must be a file in a folder"),
        (["report", str(folder), "--out", str(tmp_path)], "out must be a file in a folder"),
        (["figures", str(folder / "attention"), "nothing"], "only must be one of attention_mse, "),
        (["figures", str(folder / "attention"), "--size", "huge"], "size must be one of screen, page, column"),
        (["figures", str(folder / "attention"), "--formats", "gif"], "formats must be one of pdf, png, svg"),
        (["figures", str(folder / "attention"), "bias", "--out", str(tmp_path / "file")], "cannot be written to"),
    ):
        assert main(words) == 2, words
        printed = capsys.readouterr().err
        assert message in printed
        assert printed.count("\n") == 1


def test_what_is_not_measured_to_its_end_or_by_another_version_is_refused(folder, tmp_path):
    """A verdict speaks of the whole design, and so does a figure."""
    whole = folder / "softmax-kernel"
    (tmp_path / "config.json").write_text((whole / "config.json").read_text())
    lines = (whole / "records.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "records.jsonl").write_text("".join(lines[:3]))
    for call in (report, figures, lambda path: plot(path, "ratio")):
        with pytest.raises(ParameterError, match=r"holds 3 of 4 cells: run its study again, which goes on"):
            call(tmp_path)
    older = [
        {name: value for name, value in json.loads(line).items() if name not in ("exact", "checksum")} for line in lines
    ]
    (tmp_path / "records.jsonl").write_text("".join(json.dumps(seal(each)) + "\n" for each in older))
    for call in (report, figures, lambda path: plot(path, "variance_1.5")):
        with pytest.raises(FileFormatError, match="records lack the field 'exact': another version measured them"):
            call(tmp_path)


def test_a_page_says_what_a_sweep_of_ones_own_lacks(tmp_path):
    """Of one that was stopped cells, of one that returns a lone number intervals."""
    run(Sweep("mine", {"n": (10, 20, 30)}, lambda cell, rng: {"mean": rng.random()}, stop=Stop(draws=5)), tmp_path)
    records = tmp_path / "records.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    for count, bare in ((3, False), (2, False), (2, True)):
        kept = [json.loads(line) for line in lines[:count]]
        if bare:
            fields = ("mean_low", "mean_high", "checksum")
            kept = [seal({name: value for name, value in each.items() if name not in fields}) for each in kept]
        records.write_text("".join(json.dumps(each) + "\n" for each in kept))
        text = report(tmp_path).read_text(encoding="utf-8")
        assert ("not finished: 2 of 3 cells" in text) == (count == 2)
        if not bare:  # a figure by itself says so too
            assert plot(tmp_path, "mean", size="column").axes[0].get_xlabel().endswith("2 of 3 cells") == (count == 2)
        assert ('id="mine-figure-mean"' in text) == (not bare)
        assert ("Every point here has an interval" in text, "No field has an interval" in text) == (not bare, bare)


def test_each_study_of_a_page_has_ids_of_its_own(tmp_path):
    """Of two sweeps of one name the second button would download the records of the first."""
    for folder, name in (("a", "mine"), ("b", "mine"), ("c", '"><i>'), ("d", "--")):
        run(Sweep(name, {"n": (10,)}, lambda cell, rng: {"mean": rng.random()}, stop=Stop(draws=5)), tmp_path / folder)
    page = Page(text := report(tmp_path).read_text(encoding="utf-8"))
    assert len(set(page.ids)) == len(page.ids)
    assert {"mine", "mine-2", "i", "4"} <= set(page.ids) >= set(re.findall('data-of="([^"]*)"', text))


def test_a_sweep_of_ones_own_may_have_the_name_of_a_preset(tmp_path):
    run(Sweep("tails", {"n": (10,)}, lambda cell, rng: {"mean": rng.random()}, stop=Stop(draws=5)), tmp_path)
    assert 'id="tails-all-cells"' in report(tmp_path).read_text(encoding="utf-8")
    for call in (figures, lambda folder: plot(folder, "mean")):
        with pytest.raises(ParameterError, match="tails has no figure: no field with an interval along an axis of two"):
            call(tmp_path)


@pytest.mark.parametrize("name", PRESETS)
def test_formulas_and_sources(name):
    """Every formula is MathML that a parser takes; every year that a claim names is that of a paper that we cite."""
    if name not in ("coverage", "independence", "regression", "time-to-error"):  # of which nothing has a closed form
        assert len(list(ET.fromstring(mathml(PRESETS[name].formula)).iter())) > 5
    years = {int(year) for year in re.findall(r"\b(?:19|20)\d\d\b", PRESETS[name].claim)}
    assert years <= {work.year for work in cited_works(PRESETS[name].claim)}
