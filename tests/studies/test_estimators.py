"""What the study of estimators finds, against the formulas of the papers, and what turns its verdicts over."""

import numpy as np
import pytest

from kernattn.cli import main
from kernattn.studies import PRESETS, study
from kernattn.studies._records import select
from kernattn.studies._tokens import shipped_tokens

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")


def of(records, kernel, source, temperature, estimator):
    wanted = {"kernel": kernel, "source": source, "temperature": temperature, "estimator": estimator}
    (found,) = (r for r in records if all(r[key] == value for key, value in wanted.items()))
    return found


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
@pytest.mark.parametrize("temperature", [64.0, 1.0])
def test_closed_forms_are_those_of_the_papers(found, kernel, temperature):
    """Lemma 2 of Choromanski et al. (2021), for 64 positive features, 32 hyperbolic pairs and 32 sines and cosines."""
    records, _, _ = found("estimators")
    tokens = shipped_tokens("digits", 64, 256, 0)
    x, y = (rows / np.sqrt(4 * temperature) for rows in (tokens.q, tokens.k))
    squares = np.sum(x**2, axis=1)[:, None] + np.sum(y**2, axis=1)
    product = x @ y.T
    v2, z2 = squares + 2 * product, np.maximum(squares - 2 * product, 0.0)
    entries = np.exp(product if kernel == "softmax" else -z2 / 2)
    relative = {
        "positive": (np.exp(v2) - 1) / 64,
        "hyperbolic": (np.exp(v2) - 1) * (1 - np.exp(-v2)) / 64,
        "trigonometric": np.exp(z2) * (1 - np.exp(-z2)) ** 2 / 64,
    }
    for estimator, each in relative.items():
        record = of(records, kernel, "digits", temperature, estimator)
        expected = np.sum(each * entries**2) / np.sum(entries**2)
        assert record["error_predicted"] == pytest.approx(expected, rel=1e-5)
        assert record["typical"] == pytest.approx(np.exp(np.mean(np.log1p(64 * each))), rel=1e-5)
    out = entries @ tokens.v / entries.sum(axis=1, keepdims=True)
    assert record["uniform"] == pytest.approx(np.mean((tokens.v.mean(axis=0) - out) ** 2), rel=1e-6)


def test_what_holds(found):
    records, page, _ = found("estimators")
    assert len(records) == 2 * 2 * 2 * 7
    for record in records:
        other = of(records, "gaussian", record["source"], record["temperature"], record["estimator"])
        assert record["typical"] == pytest.approx(other["typical"], rel=1e-5)
    asymmetric = of(records, "softmax", "anisotropic", 1.0, "favor_sharp_asymmetric")
    for estimator in ("positive", "optimal_positive", "favor_sharp", "trigonometric"):
        record = of(records, "softmax", "anisotropic", 1.0, estimator)
        assert asymmetric["over_uniform_high"] < record["over_uniform_low"]
        assert asymmetric["typical"] < record["typical"]
    trig, positive = (of(records, "softmax", "digits", 1.0, name) for name in ("trigonometric", "positive"))
    assert trig["error_predicted"] < 1e-3 * positive["error_predicted"]  # the better kernel is the worse attention
    assert trig["over_uniform_low"] > 1 > positive["over_uniform_high"]
    assert positive["error_low"] is None  # the tail is out of reach
    assert trig["error_low"] < trig["error_predicted"] < trig["error_high"]
    assert "- Holds for the softmax kernel: hyperbolic features err no more than positive ones" in page
    assert "- Holds in part for the softmax kernel: positive features err no more than trigonometric" in page


def test_verdicts_can_turn_over(found):
    records, _, _ = found("estimators")
    verdicts = PRESETS["estimators"].sentences

    def told(estimator, factor):
        forged = ("error_predicted", "typical", "over_uniform", "over_uniform_low", "over_uniform_high")
        return verdicts(
            [r | {name: factor * r[name] for name in forged} if r["estimator"] == estimator else r for r in records]
        )

    assert told("hyperbolic", 1e9)[0].startswith(
        "Does not hold for the softmax kernel: hyperbolic features err no more than positive ones"
    )
    assert told("positive", 1e-9)[1].startswith(
        "Holds for the softmax kernel: positive features err no more than trigonometric"
    )
    assert told("positive", 1e9)[1].startswith(
        "Does not hold for the softmax kernel: positive features err no more than trigonometric"
    )
    wide = verdicts([r | {"over_uniform_low": 0.0, "over_uniform_high": 1e99} for r in records])
    assert wide[1].startswith(
        "Open for the softmax kernel: whether positive features err no more than trigonometric"
    )  # nothing is told apart
    few = [r for r in records if r["estimator"] in ("phase", "favor_sharp")]
    assert not any("err no more than" in text for text in verdicts(few))


@pytest.mark.parametrize("words", ["kernel=laplacian", "source=nothing", "estimator=tensor_sketch", "temperature=-1"])
def test_bad_axes_are_one_line(words, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["study", "estimators", "--quick", "--workers", "0", "--out", str(out), "--set", words]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not out.exists()


def test_a_fitted_map_is_one_of_them(tmp_path, no_figures):
    """It has no random numbers and no closed form; of two kernels and projections it serves one."""
    estimators = ["favor_sharp_asymmetric", "learned"]
    axes = {"estimator": estimators, "source": ["digits"], "temperature": [1.0], "m": [32]}
    records = study("estimators", tmp_path, draws=6, axes=axes)
    fits = [r for r in records if r["estimator"] == "learned"]
    assert [(r["kernel"], r["projection"]) for r in fits] == [("softmax", "orthogonal")]
    (fit,) = fits
    other = of(select(records, projection="orthogonal"), "softmax", "digits", 1.0, "favor_sharp_asymmetric")
    assert fit["over_uniform"] == fit["over_uniform_high"] < 0.7 * other["over_uniform_low"]
    assert fit["error"] is None is fit["error_predicted"]
    claim = "learned features err no more than favor sharp asymmetric ones (Zhang et al. 2024)."
    assert any(
        told.startswith(f"Holds for the softmax kernel: {claim}") for told in PRESETS["estimators"].sentences(records)
    )
