"""The study of mechanisms: its numbers hold together, its budgets are kept, and its verdict can turn."""

import copy

import numpy as np
import pytest

import kernattn as ka
from kernattn.cli import main
from kernattn.errors import ParameterError, ShapeError
from kernattn.studies import PRESETS, read_records, study
from kernattn.studies._presets.mechanisms.budgets import MECHANISMS, Mechanism
from kernattn.studies._presets.mechanisms.measure import Problem, effective_keys, measured
from kernattn.studies._presets.mechanisms.sources import SOURCES, tokens_of
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
    for record in same:  # what one ranking would look like
        place = 1.0 + list(MECHANISMS).index(record["mechanism"])
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
        if record["mechanism"] not in ("bigbird", "routing", "lsh"):
            assert record["flops"] == pytest.approx(record["budget"], rel=0.1), where


@pytest.mark.parametrize("name", MECHANISMS)
def test_mechanisms_keep_their_budget(name):
    """Flops lie near what they may be, and grow with it."""
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((2, 1024, 16))
    flops = [MECHANISMS[name](q, k, 16, budget, rng).flops for budget in (1 / 16, 1 / 8, 1 / 4)]
    assert flops == sorted(flops)
    np.testing.assert_allclose(flops, [1 / 16, 1 / 8, 1 / 4], rtol=0.3)


def test_exact_attention_has_no_error():
    x = tokens_of("digits", 40, 0)
    weights = ka.softmax_attention(x.q, x.k, np.eye(40))
    rest = weights - np.diag(np.diag(weights))
    apart = rest / rest.sum(axis=1, keepdims=True) @ x.v
    given = Problem(x.q, x.k, x.v, weights, weights @ x.v, apart, uniform=1.0, uniform_apart=1.0)
    found = measured(given, Mechanism(ka.softmax_attention, 1.0))
    assert found["error"] == pytest.approx(0, abs=1e-20)
    assert found["error_without_self"] == pytest.approx(0, abs=1e-20)
    assert found["mass"] == pytest.approx(1)
    assert effective_keys(np.full((3, 7), 1 / 7)) == pytest.approx(7)
    assert effective_keys(np.eye(3)) == pytest.approx(1)


@pytest.mark.parametrize("source", SOURCES)
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
    with refused(ParameterError, "redraw", "takes no data"):
        study("redraw", tmp_path / "b", data=tmp_path / "mine.npz")
    with refused(ParameterError, "budget", "1.5"):
        study("mechanisms", tmp_path / "b", axes={"budget": [1.5]})
    assert not (tmp_path / "b").exists()
