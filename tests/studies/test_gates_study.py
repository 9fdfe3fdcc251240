"""The study of strong gates: its two recurrences and its chunks are one function, and verdicts follow the records."""

import numpy as np
import pytest

from kernattn.errors import ParameterError
from kernattn.studies import PRESETS, study
from kernattn.studies._presets.gates import GATES, RULES, STRENGTHS, chunk_by_differences, draw, measure, recur

pytest.importorskip("matplotlib")
verdicts = PRESETS["gates"].sentences


def exact(given):
    return recur(*(None if x is None else x.astype(np.float64) for x in given))


@pytest.mark.parametrize("gates", GATES)
@pytest.mark.parametrize("rule", RULES)
def test_all_methods_are_one_function(rule, gates):
    """In float64, of gates that are mild; 130 tokens are two chunks and a rest."""
    given = [None if x is None else x.astype(np.float64) for x in draw(rule, gates, "mild", 130, 0)]
    np.testing.assert_allclose(chunk_by_differences(*given), recur(*given), atol=1e-13)
    np.testing.assert_allclose(measure("kernattn", given), recur(*given), atol=1e-13)


def test_differences_err_as_the_function_of_transformers_does():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    given = draw("delta", "head", "mild", 130, 0)
    np.testing.assert_allclose(measure("transformers", given), exact(given), atol=1e-6)
    given = draw("delta", "head", "extreme", 130, 0)
    ours, theirs = (np.max(np.abs(measure(m, given) - exact(given))) for m in ("differences", "transformers"))
    assert 0.2 < ours / theirs < 5
    given = draw("delta", "head", "reset", 130, 0)
    assert all(np.isnan(measure(method, given)).any() for method in ("differences", "transformers"))


def test_what_it_finds(found):
    records, page, _ = found("gates")
    error = {(r["method"], r["rule"], r["gates"], r["strength"], r["n"]): r["error"] for r in records}
    for (method, rule, gates, strength, n), value in error.items():
        if method != "differences" or strength == "mild":
            assert value < 1e-6
        elif strength == "extreme":
            assert value > 100 * error["kernattn", rule, gates, strength, n]
        else:
            assert value is None
    assert "Holds for kernattn, gates above -0.1, three gates of -1e4, three gates of -inf: outputs are right" in page
    assert (
        "Does not hold for chunks by differences of cumulative sums, three gates of -1e4, three gates of -inf" in page
    )
    assert "Outputs are not all finite in 8 of 16 settings" in page


def test_verdicts_follow_the_records(found):
    records = found("gates")[0]
    wrong = [r | {f"error{end}": 1e-3 for end in ("", "_low", "_high")} for r in records]
    assert all(each.startswith("Does not hold") and "any gates" not in each for each in verdicts(wrong))
    every = [r | {"strength": strength} for r in wrong if r["strength"] == "mild" for strength in STRENGTHS]
    assert all(each.startswith("Does not hold") and "any gates" in each for each in verdicts(every))
    unclear = [r | {"error": 1e-6, "error_low": 1e-7, "error_high": 1e-5} for r in records]
    assert all(each.startswith("Open for") for each in verdicts(unclear))
    assert len(verdicts(unclear)) == 3


def test_bad_axes(tmp_path):
    for axes in ({"strength": ["weak"]}, {"method": ["fla"]}, {"rule": ["general"]}):
        with pytest.raises(ParameterError, match="must be one of"):
            study("gates", tmp_path / "out", quick=True, axes=axes)
    assert not (tmp_path / "out").exists()
