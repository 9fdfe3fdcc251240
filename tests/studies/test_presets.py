"""Every study that kernattn brings, in its quick form: what it finds, its figures, its verdicts."""

import copy
import re
from pkgutil import resolve_name

import numpy as np
import pytest

from kernattn.cli import main
from kernattn.errors import ParameterError
from kernattn.studies import PRESETS, read_records, study
from kernattn.studies._presets.preset import Figure
from kernattn.studies._presets.verdict import Ratio, Tally, Verdict

pytest.importorskip("matplotlib")

MEDIANS = "gates", "norms", "attention-error", "redraw", "estimators", "learned", "time-to-error", "mechanisms"
FEWEST = dict.fromkeys((*MEDIANS, "uniform", "coverage"), 6) | {"spectral": 36}


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "attention"])  # whose page is its own
def test_page(found, name):
    records, page, files = found(name)
    assert f"# {PRESETS[name].title}\n" in page
    assert PRESETS[name].claim in page
    verdicts = PRESETS[name].sentences(records)
    for verdict in verdicts:
        assert f"- {verdict}\n" in page
    for stem, figure in PRESETS[name].figures.items():
        assert f"{stem}.png" in files
        assert f"]({stem}.png)" in page
        assert figure.shows is None or any(re.search(figure.shows, verdict) for verdict in verdicts), stem


def test_what_a_figure_shows_is_what_its_verdicts_say():
    for counts, word in (((3, 1, 0), "Holds in part"), ((3, 0, 1), "Holds in part"), ((0, 2, 1), "Does not hold")):
        assert Tally(*counts).word == word
    assert Tally(0, 0, 3).word == "Open"
    figure = Figure("Title", "subtitle", lambda records, ax: None, shows="in b")
    told = [
        Verdict("x", tally=Tally(2, 0), where="in a"),
        Verdict("y", tally=Tally(0, 3), ratio=Ratio("the x", [3]), where="in b", source="Yu et al. 2016"),
        Verdict("z", tally=Tally(1, 1, 2), where="in b"),
    ]
    assert [str(each) for each in told] == [
        "Holds in a: x. Surely so in 2 of 2 settings, surely not in 0, open in 0.",
        "Does not hold in b: y (Yu et al. 2016). Surely so in 0 of 3 settings, surely not in 3, open in 0. The x is 3.",
        "Holds in part in b: z. Surely so in 1 of 4 settings, surely not in 1, open in 2.",
    ]
    brief = "Does not hold in b: y (Yu et al. 2016). The x is 3. Holds in part in b: z. Surely so in 1 of 4 settings,"
    assert figure.findings(told) == f"{brief} surely not in 1, open in 2."
    assert figure.findings(2 * told) == "Of its 4 verdicts: holds in part 2, does not hold 2."
    assert figure.findings(told[:1]) == figure.findings(4 * [Verdict("of rows in b")]) == ""
    assert figure._replace(shows=None).findings(told) == ""
    assert (
        figure._replace(shows=r"in (\w)").findings(told).startswith("Holds in a: x.")
    )  # of the first, as the figure is


@pytest.mark.parametrize(("first", "last"), [("softmax", "gaussian"), ("gaussian", "softmax")])
def test_captions_of_the_first_kernel_tell_of_no_other(found, first, last):
    records = [{**r, "kernel": kernel} for kernel in (first, last) for r in found("estimators")[0]]
    preset = PRESETS["estimators"]
    told = preset.figures["rank"].findings([v for v in preset.verdicts(records) if "trigonometric" in str(v)])
    assert f"for the {first.replace('gaussian', 'Gaussian')} kernel" in told
    assert f"for the {last.replace('gaussian', 'Gaussian')} kernel" not in told


def test_the_caption_of_the_smallest_scale_tells_of_no_other(found):
    records = [{**r, "scale": scale} for scale in (2.0, 0.25) for r in found("time-to-error")[0]]
    preset = PRESETS["time-to-error"]
    told = preset.figures["error_over_time"].findings(preset.verdicts(records))
    assert "at scale 0.25:" in told
    assert "at scale 2:" not in told


def at(record, field, **where):
    """The value of a vector at a place of its axes."""
    index = tuple(record[axis].index(value) for axis, value in where.items())
    return np.asarray(record[field], float)[index]


def test_softmax_kernel(found):
    """As SM -> 0 the error of trigonometric features stays, that of positive ones vanishes: SM = exp(-9/8) and less."""
    records, page, _ = found("softmax-kernel")
    trig, positive = (
        next(r for r in records if (r["estimator"], r["projection"]) == (name, "orthogonal"))
        for name in ("trigonometric", "positive")
    )
    place = {"angle": 120.0, "length": 1.5}
    assert at(trig, "variance_predicted", **place) == pytest.approx(5.5, rel=0.02)
    assert at(positive, "variance_predicted", **place) == pytest.approx(0.045, rel=0.02)
    assert at(trig, "variance_low", **place) < 5.5 < at(trig, "variance_high", **place)
    assert at(positive, "variance", **place) < 0.02 * at(trig, "variance", **place)
    assert np.isnan(at(positive, "variance_high", **place))  # the tail is out of reach
    tilted = [r for r in records if r["variance_tilted"] is not None]  # the independent ones, whose tail has a mode
    assert [(r["estimator"], r["projection"]) for r in tilted] == [("positive", "iid")]
    assert tilted[0]["variance_tilted"] == pytest.approx(at(tilted[0], "variance_predicted", **place), rel=1e-6)
    assert "0.056 (unsettled; 0.056 by tilted frequencies)" in page
    opposite = {"angle": 180.0, "length": 2.0}
    assert at(positive, "variance", **opposite) < 1e-20 < 1 < at(trig, "variance", **opposite)
    assert at(positive, "variance", angle=30.0, length=1.0) > at(trig, "variance", angle=30.0, length=1.0)
    assert "Holds at d = m = 16, orthogonal" in page


@pytest.mark.parametrize(("name", "column"), [("trigonometric", 0.0), ("positive", 9.0)])
def test_softmax_kernel_verdict_can_fail(found, name, column):
    """The claim fails where trigonometric features vanish with the kernel, and where positive ones do not."""
    records, _, _ = found("softmax-kernel")
    forged = copy.deepcopy(records)
    for record in forged:
        if record["estimator"] == name:
            record["variance_predicted"][-1] = [column] * 4
    told = PRESETS["softmax-kernel"].sentences(forged)
    assert [each.startswith("Does not hold at d = m = 16") for each in told] == [True, True, False]


def test_gaussian_kernel(found):
    """Orthogonal directions gain, raw QR factors are biased for positive features, and intervals hold closed forms."""
    records, page, _ = found("gaussian-kernel")
    by = {(r["estimator"], r["projection"]): r for r in records}
    orthogonal, raw = by["trigonometric", "orthogonal"], by["positive", "raw_qr"]
    assert at(orthogonal, "ratio_high", size=0.5) < 0.25
    assert at(orthogonal, "ratio_predicted", size=0.5) == pytest.approx(at(orthogonal, "ratio", size=0.5), rel=0.2)
    assert at(by["positive", "simplex"], "ratio", size=0.5) < at(by["positive", "orthogonal"], "ratio", size=0.5)
    assert at(raw, "bias_high", size=1.0) < -0.1
    for (estimator, projection), record in by.items():
        if (estimator, projection) != ("positive", "raw_qr"):
            assert at(record, "bias_low", size=0.5) - 0.02 < 0 < at(record, "bias_high", size=0.5) + 0.02
    assert "Raw QR factors are biased: positive features, d = 16" in page
    assert "orthogonal for trigonometric features (0.16, closed form), which cannot be told from hadamard" in page
    assert "leaving out hadamard, which redraws do not settle" in page


def test_gaussian_kernel_of_other_exponentials(tmp_path, no_figures):
    """Whatever is no bounded map needs settled redraws: the tail of cosh(3 sqrt(16)) is out of reach of 400."""
    axes = {"estimator": ["hyperbolic", "phase"], "projection": ["iid", "hadamard"]}
    records = study("gaussian-kernel", tmp_path, quick=True, axes=axes)
    for record in records:
        seen = np.isfinite(at(record, "ratio_low", size=3.0))
        assert seen == (record["estimator"] == "phase")


def test_attention_error(found):
    """At scale 1 no map reaches the error of uniform attention; at scale 0.5, 256 features do."""
    records, page, _ = found("attention-error")
    large = [r for r in records if r["m"] == 256]
    assert all(r["over_uniform_low"] > 1 for r in large if r["scale"] == 1.0)
    assert all(r["over_uniform_high"] < 1 for r in large if r["scale"] == 0.5)
    trig, positive = (
        next(r for r in large if (r["scale"], r["estimator"], r["projection"]) == (1.0, name, "orthogonal"))
        for name in ("trigonometric", "positive")
    )
    assert positive["mse_high"] < trig["mse_low"]
    assert len({r["uniform"] for r in records if r["scale"] == 1.0}) == 1  # the same inputs for every method
    assert "Does not hold at length 256, scale 0.5" in page
    assert "Holds at length 256, scale 1: at m = 256 positive features err less" in page
    assert "Open at length 256, scale 1: whether at m = 256 orthogonal frequencies err less" in page
    longer = [r | {"length": 64, "mse": 2 * r["mse"]} for r in records]
    told = PRESETS["attention-error"].sentences([*records, *longer])
    assert [each for each in told if "ength 256" in each] == PRESETS["attention-error"].sentences(records)
    assert len(told) == 2 * len(PRESETS["attention-error"].sentences(records))


def test_commands(tmp_path, capsys, no_figures):
    with pytest.raises(SystemExit) as ended:
        main(["study", "--list"])
    assert ended.value.code == 0
    printed = capsys.readouterr().out
    assert printed.count("\n") == 2 * len(PRESETS)
    for name, preset in PRESETS.items():
        assert f"{name} " in printed
        assert f"{preset.title}\n" in printed
        assert f"{preset.cost}\n" in printed
    words = ["study", "softmax-kernel", "--quick", "--workers", "0", "--out", str(tmp_path), "--set", "projection=iid"]
    assert main([*words, "d=4"]) == 0
    assert "2 records, summary.md and figures" in capsys.readouterr().out
    assert main([*words, "d=4,8", "--seed", "0"]) == 0
    assert [(r["projection"], r["d"]) for r in read_records(tmp_path)] == [("iid", 4), ("iid", 8)] * 2
    capsys.readouterr()
    assert main([*words, "m=4"]) == 2
    assert "this study has the axes estimator, projection, d; got m" in capsys.readouterr().err
    assert main(["study", "gaussian-kernel", "--quick", "--out", str(tmp_path)]) == 2
    assert "holds the study softmax-kernel, not gaussian-kernel" in capsys.readouterr().err


def test_refusals(tmp_path):
    with pytest.raises(ParameterError, match=r"name must be one of attention, .*; got 'nothing'"):
        study("nothing", tmp_path)


@pytest.mark.parametrize("words", [["d=abc"], ["d=0"], ["projection=bogus"], ["estimator=nope"], ["d=4", "d=8"]])
def test_bad_axes_leave_no_folder(words, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["study", "softmax-kernel", "--quick", "--workers", "0", "--out", str(out), "--set", *words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "attention"])
def test_precision_takes_redraws_enough(name):
    """Fewer than eight give an interval that misses; each form takes a precision."""
    for quick in (True, False):
        assert resolve_name(PRESETS[name].sweep)(quick=quick, precision=0.02).stop.draws >= 8


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "attention"])
def test_too_few_redraws_are_refused_before_any_work(name):
    """Medians take six, quantiles more: what a study accepts has intervals."""
    sweep, too_few = resolve_name(PRESETS[name].sweep), []
    for draws in range(2, 40):
        try:
            sweep(quick=True, draws=draws)
        except ParameterError:
            too_few.append(draws)
    assert too_few == list(range(2, FEWEST.get(name, 2)))


def test_precision_says_what_it_takes(capsys):
    with pytest.raises(SystemExit):
        main(["study", "softmax-kernel", "--precision", "abc"])
    assert "a share such as 2% or 0.02; got 'abc'" in capsys.readouterr().err
