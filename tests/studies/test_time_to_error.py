"""What the study of times finds, but for the times themselves, and what turns its verdicts over."""

import numpy as np
import pytest

from kernattn.cli import main
from kernattn.studies import PRESETS, study

pytest.importorskip("matplotlib")


def test_errors_are_those_of_the_formula(found):
    """Positive features in NumPy, independent ones: orthogonal ones err about as much."""
    records, _, _ = found("time-to-error")
    record = next(r for r in records if (r["length"], r["estimator"]) == (512, "positive"))
    q, k = np.random.default_rng(0).standard_normal((2, 512, 64))
    weights = np.exp(q @ k.T / 32)
    exact = weights @ k / weights.sum(axis=1, keepdims=True)
    uniform = np.mean((k.mean(axis=0) - exact) ** 2)
    assert record["uniform"] == pytest.approx(uniform, rel=1e-5)
    rng, both = np.random.default_rng(1), np.concatenate([q, k]) / 2 / 64**0.25
    errors = []
    for _ in range(8):
        phi = np.exp(both @ rng.standard_normal((64, 1024)) - np.sum(both**2, axis=1, keepdims=True) / 2)
        estimate = phi[:512] @ phi[512:].T
        errors.append(np.mean((estimate @ k / estimate.sum(axis=1, keepdims=True) - exact) ** 2) / uniform)
    assert np.median(errors) == pytest.approx(record["over_uniform"][-1], rel=0.25)


def test_structure_and_errors(found):
    records, page, _ = found("time-to-error")
    for record in records:
        assert record["m"] == [64, 256, 1024]
        assert record["exact_seconds"] > 0
        assert len(record["linear_seconds"]) == 3
        assert min(record["linear_seconds"]) > 0
        assert record["rounding_over_uniform"] < 1e-9
        assert record["over_uniform_low"][0] > 1 > record["over_uniform"][-1]
    assert page.count("\n- ") == 5
    assert "- Does not hold at scale 0.5: features reach 0.1 times uniform attention's error" in page


def test_records_repeat_but_for_times(tmp_path, no_figures):
    axes = {"length": [32], "m": [64], "estimator": ["positive"]}
    (one,), (other,) = (study("time-to-error", tmp_path / name, quick=True, axes=axes) for name in ("one", "other"))
    for name, value in one.items():
        assert name.endswith("seconds") or value == other[name], name


def test_verdicts_can_turn_over(found):
    records, _, _ = found("time-to-error")
    verdicts = PRESETS["time-to-error"].sentences
    good = {f"over_uniform{end}": [1e-3] * 3 for end in ("", "_low", "_high")}
    slow, fast = ({"linear_seconds": [value] * 3, "exact_seconds": 1.0} for value in (10.0, 0.1))
    assert all(text.startswith("Holds at scale 0.5") for text in verdicts([r | good | fast for r in records])[:2])
    assert all(text.startswith("Does not hold at") for text in verdicts([r | good | slow for r in records])[:2])
    mixed = verdicts([r | good | (fast if r["length"] > 200 else slow) for r in records])
    assert mixed[0].startswith("Holds in part at scale 0.5")
    assert "Positive, orthogonal: from n = 512 on (at n = 512: 10 times as fast with m = 64)" in mixed[0]
    last = {"over_uniform_high": [None, 0.6, 0.05]}  # an error is reached where its whole interval is
    assert "(at n = 512: 10 times as fast with m = 1024)" in verdicts([r | good | last | fast for r in records])[0]
    assert mixed[2].startswith("Holds: the features needed do not grow")
    worse = {f"over_uniform{end}": [9.0] * 3 for end in ("", "_low", "_high")}
    grown = verdicts([r | (worse if r["length"] > 200 else good) for r in records])
    assert grown[2].startswith("Does not hold: the features needed")
    wide = {"over_uniform_low": [0.1] * 3, "over_uniform": [1.0] * 3, "over_uniform_high": [9.0] * 3}
    assert verdicts([r | wide for r in records])[2].startswith("Open: whether the features needed")
    unknown = [r | {"over_uniform_high": [None] * 3} for r in records]
    assert verdicts(unknown)[2].startswith("Open: whether the features needed")
    quadratic = [r | {"linear_seconds": [r["length"] ** 2.0] * 3, "exact_seconds": r["length"] * 1.0} for r in records]
    assert verdicts(quadratic)[3].startswith("Does not hold: the time of linear attention")
    linear = [r | {"linear_seconds": [r["length"] * 1.0] * 3} for r in records]
    assert verdicts(linear)[3].startswith("Holds: the time of linear attention")


def test_bad_axes_are_one_line(tmp_path, capsys):
    for words in ("m=0", "length=2.5", "dim=4"):
        out = tmp_path / "out"
        assert main(["study", "time-to-error", "--quick", "--workers", "0", "--out", str(out), "--set", words]) == 2
        assert capsys.readouterr().err.count("\n") == 1
        assert not out.exists()
