"""The study of mechanisms: its numbers hold together, its budgets are kept, and its verdict can turn."""

import copy

import numpy as np
import pytest

from kernattn.cli import main
from kernattn.errors import ParameterError, ShapeError
from kernattn.studies import PRESETS, read_records, study
from kernattn.studies._presets.mechanisms.sources import tokens_of
from refusals import refused

pytest.importorskip("matplotlib")
PRESET = PRESETS["mechanisms"]


def by(records, **where):
    return next(r for r in records if all(r[key] == value for key, value in where.items()))


def test_the_ranking_turns_over(found):
    """Rows that look at everything have features and means, rows that look at a few keys have patterns."""
    records, page, _ = found("mechanisms")
    hot, cold = ({"temperature": t, "budget": 0.25} for t in (4.0, 0.25))
    assert by(records, **hot)["effective_keys"] > 10 * by(records, **cold)["effective_keys"]
    for low in ("favor", "pooling", "nystrom"):
        assert by(records, **hot, mechanism=low)["error_high"] < by(records, **hot, mechanism="local")["error_low"]
        assert by(records, **cold, mechanism=low)["error_low"] > by(records, **cold, mechanism="local")["error_high"]
    assert "on photographs, 256 tokens: one ranking of mechanisms serves at every temperature." in page
    first = PRESET.sentences(records)[0]
    assert first.startswith("Does not hold")
    assert "change places on this sequence" in first
    same = copy.deepcopy(records)
    mechanisms = list(dict.fromkeys(record["mechanism"] for record in records))
    for record in same:  # what one ranking would look like
        place = 1.0 + mechanisms.index(record["mechanism"])
        record |= {"error": place, "error_low": place, "error_high": place}
    told = PRESET.sentences(same)[0]
    assert told.startswith("Holds on")
    assert "0 of 36 pairs change places on this sequence, whatever is drawn, and 36 do not" in told


def test_fields_hold_together(found):
    for record in found("mechanisms")[0]:
        where = record["mechanism"], record["temperature"]
        assert 0 <= record["mass"] <= 1 + 1e-12, where
        assert record["variance"] > 1e-6 * (record["mechanism"] in ("favor", "routing", "linformer")), where
        if record["mechanism"] in ("local", "pooling", "nystrom"):
            assert record["error_low"] == record["error_high"] == pytest.approx(record["squared_bias"]), where
        if (record["mechanism"], record["budget"]) != ("routing", 1 / 16):  # of 256 tokens it takes more
            near = 0.3 if record["mechanism"] in ("bigbird", "lsh") else 0.1
            assert record["flops"] == pytest.approx(record["budget"], rel=near), where


@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_a_segment_for_each_key_is_exact_attention(scale, tmp_path, no_figures):
    """It has no error, and all the mass; queries of almost 0 look at all keys."""
    q, k, v = np.random.default_rng(0).standard_normal((3, 48, 4))
    np.savez(tmp_path / "mine.npz", q=scale * q, k=k, v=v)
    axes = {"mechanism": ["pooling"], "temperature": [1.0], "budget": [1.0]}
    (record,) = study("mechanisms", tmp_path / "out", draws=6, axes=axes, data=tmp_path / "mine.npz")
    weights = np.exp(scale * q @ k.T / 2)
    weights /= weights.sum(axis=1, keepdims=True)
    entropy = -np.sum(weights * np.log(weights), axis=1)
    assert record["effective_keys"] == pytest.approx(np.mean(np.exp(entropy)), rel=1e-7)
    assert record["error"] == pytest.approx(0, abs=1e-15)
    assert record["error_without_self"] == pytest.approx(0, abs=1e-15)
    assert record["mass"] == pytest.approx(1)


@pytest.mark.parametrize("source", ["photographs", "digits", "text"])
def test_tokens_stand_in_their_order(source):
    x = tokens_of(source, 300, 0)
    np.testing.assert_allclose(np.linalg.norm(x.q, axis=1), 4.0)
    np.testing.assert_array_equal(x.q, x.k)
    again = tokens_of(source, 300, 0)
    np.testing.assert_array_equal(x.v, again.v)
    near, far = (np.mean(np.sum(x.q[step:] * x.q[:-step], axis=1)) for step in (1, 150))
    assert (near > far + 1) == (source == "photographs")


def test_tokens_of_ones_own(tmp_path, capsys, no_figures):
    rng = np.random.default_rng(0)
    q, k, v = rng.standard_normal((3, 48, 4))
    np.savez(tmp_path / "mine.npz", q=q, k=k, v=v)
    given = ["mechanisms", "--quick", "--workers", "0", "--out", str(tmp_path / "out")]
    set_ = ["--set", "mechanism=local,favor", "temperature=1.0", "budget=0.25"]
    assert main(["study", *given, "--data", str(tmp_path / "mine.npz"), *set_]) == 0
    records = read_records(tmp_path / "out")
    assert [r["mechanism"] for r in records] == ["local", "favor"]
    assert {(r["source"], r["length"]) for r in records} == {("mine", 48)}
    np.savez(tmp_path / "uneven.npz", q=q[:9], k=k, v=v)
    with refused(ShapeError, "uneven.npz", "as many queries as keys", "48"):
        study("mechanisms", tmp_path / "b", data=tmp_path / "uneven.npz")
    with refused(ParameterError, "source and length", "data"):
        study("mechanisms", tmp_path / "b", data=tmp_path / "mine.npz", axes={"length": [10]})
    with refused(ParameterError, "capacity", "takes no data"):
        study("capacity", tmp_path / "b", data=tmp_path / "mine.npz")
    with refused(ParameterError, "budget", "1.5"):
        study("mechanisms", tmp_path / "b", axes={"budget": [1.5]})
    assert not (tmp_path / "b").exists()


HALVES = ("local", 1 / 8), ("learned", 1 / 4), ("favor", 1 / 4), ("window-learned", 3 / 16)


def test_a_window_and_a_fitted_map(tmp_path, no_figures):
    """Both are fitted to tokens that do not judge; the verdict compares them at as many keys and features."""
    axes = {"mechanism": ["favor", "learned", "window-learned"], "budget": [0.25], "temperature": [1.0]}
    records = study("mechanisms", tmp_path, quick=True, draws=6, axes={**axes, "source": ["digits"]})
    favor, learned, both = records
    assert learned["error"] < 0.7 * favor["error"]
    assert both["error"] < 0.7 * favor["error"]
    assert learned["error_low"] == learned["error_high"]  # one fit
    assert [r["flops"] for r in records] == pytest.approx([0.25] * 3, rel=0.1)

    def told(**errors):
        made = [favor | {"mechanism": name, "budget": budget, "length": 1024} for name, budget in HALVES]
        for r in made:
            r |= {f"error{end}": errors.get(r["mechanism"].replace("-", "_"), 1.0) for end in ("", "_low", "_high")}
        return str(PRESET.verdicts(made)[-1])

    claim = "a window of 64 keys and a fitted map of 64 features err less than either alone of twice the size"
    assert told(window_learned=0.5).startswith(f"Holds on digits, 1024 tokens: {claim}")
    assert told(window_learned=0.5, local=0.25).startswith("Does not hold")
    assert told(window_learned=0.5, learned=0.25).startswith("Does not hold")
    assert "0.5 against 1 of the window, 0.75 of the fitted map and 2" in told(
        window_learned=0.5, learned=0.75, favor=2.0
    )


def test_fits_need_rows_that_do_not_judge(tmp_path, no_figures):
    q, k, v = np.random.default_rng(0).standard_normal((3, 48, 4))
    np.savez(tmp_path / "mine.npz", q=q, k=k, v=v)
    with refused(ParameterError, "mechanism", "learned"):
        study("mechanisms", tmp_path / "b", data=tmp_path / "mine.npz", axes={"mechanism": ["learned"]})
