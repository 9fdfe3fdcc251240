"""The study of dtypes: what its quick form finds, and verdicts that records can turn over."""

import copy
from pkgutil import resolve_name

import pytest

from kernattn.errors import ParameterError
from kernattn.studies import PRESETS, study

pytest.importorskip("matplotlib")
verdicts = PRESETS["dtype"].sentences


def errors(records, **wanted):
    """Error in units of u, by n."""
    chosen = (r for r in records if all(r[key] == value for key, value in wanted.items()))
    return {r["n"]: r["error"] / r["roundoff"] for r in chosen}


def test_what_it_finds(found):
    """A running sum in half precision loses digits over 1024 tokens; kernattn's error stays that of one rounding."""
    records, page, _ = found("dtype")
    for name in ("elu1", "favor+"):
        for precision in {r["dtype"] for r in records} - {"float32"}:
            lost = errors(records, map=name, dtype=precision, sums="naive")
            kept = errors(records, map=name, dtype=precision, sums="reference")
            assert lost[1024] > 3 * lost[64]
            assert 0.2 < kept[1024] < 0.6  # a rounding that is uniform in half a unit has 0.3 to 0.6 u
            assert kept[64] < 0.6
        single = errors(records, map=name, dtype="float32", sums="reference")
        assert single[1024] < 4
        assert errors(records, map=name, dtype="float32", sums="naive")[64] < 20  # right where there are digits
    assert "Holds for a running sum in that dtype, elu1, float16: errors grow with n" in page
    assert "Does not hold for kernattn's reference, elu1, float16: errors grow with n" in page


def test_verdicts_follow_the_records(found):
    records = found("dtype")[0]
    flat = [r | {"error": r["roundoff"], "error_low": r["roundoff"], "error_high": r["roundoff"]} for r in records]
    assert all(each.startswith(("Does not hold", "The dtype bfloat16 was")) for each in verdicts(flat))
    steep = [r | {f"error{end}": r["roundoff"] * r["n"] for end in ("", "_low", "_high")} for r in records]
    assert all(each.startswith(("Holds", "The dtype bfloat16 was")) and "n^1.00" in each for each in verdicts(steep))
    unclear = [r | {"error_low": r["error"] / 99, "error_high": 1e9} for r in steep]
    assert all(each.startswith(("Open", "The dtype bfloat16 was")) for each in verdicts(unclear))
    lost = copy.deepcopy(records)
    for r in lost:
        if r["n"] == 1024:
            r |= {"error": None, "error_low": None, "error_high": None}
    assert all(
        "From n = 1024 on the sums overflow" in each or "The dtype bfloat16 was" in each for each in verdicts(lost)
    )
    without = verdicts([r for r in records if r["dtype"] != "bfloat16"])
    assert without[-1].startswith("The dtype bfloat16 was left out")


def test_bad_axes(tmp_path, monkeypatch):
    for axes, message in (({"dtype": ["float8"]}, "dtype must be one of"), ({"n": [1]}, "n must be at least 2")):
        with pytest.raises(ParameterError, match=message):
            study("dtype", tmp_path / "out", quick=True, axes=axes)
    monkeypatch.setattr("kernattn.studies._presets.dtype.find_spec", lambda name: None)
    assert "bfloat16" not in resolve_name(PRESETS["dtype"].sweep)(quick=True).axes["dtype"]
    with pytest.raises(ParameterError, match="ml_dtypes"):
        study("dtype", tmp_path / "out", quick=True, axes={"dtype": ["bfloat16"]})
    assert not (tmp_path / "out").exists()
