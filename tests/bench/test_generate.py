"""Races of generation: ways of taking steps give the same logits, counts are those of the papers' sizes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("numba")

from bench.cpu.generate import in_onnx, ours, races
from bench.cpu.generate.counts import Setting, cached, linear, prefixes, whole
from bench.cpu.generate.in_torch import InTorch
from bench.cpu.generate.races import generation
from bench.cpu.targets import reached
from kernattn.cli import main
from kernattn.errors import ParameterError
from kernattn.features import elu1
from kernattn.transformer import Config, forward, initial_params, prefill

CONFIG = Config(dim=16, layers=3, heads=2, vocab=256, length=41)
PARAMS = initial_params(CONFIG, rng=0)
TOKENS = np.random.default_rng(0).integers(256, size=40)


@pytest.mark.parametrize(
    ("steps", "layers", "of_whole", "of_prefixes", "of_cached"),
    [(784, 8, 1160, 401, 1.23), (3072, 16, 9028, 2367, 1.96)],
)
def test_counts(steps: int, layers: int, of_whole: float, of_prefixes: float, of_cached: float) -> None:
    s = Setting(steps, layers)
    least = linear(s)
    assert whole(s, masked=True) / least == pytest.approx(of_whole, abs=0.5)
    assert prefixes(s) / least == pytest.approx(of_prefixes, abs=0.5)
    assert cached(s) / least == pytest.approx(of_cached, abs=0.005)
    assert whole(s) < whole(s, masked=True)


def test_prefixes_are_counted_as_the_sum_of_their_steps() -> None:
    s = Setting(3000, 4, heads=2, d=16)
    below = [3 * (24 * 32**2 * t + 2 * 32 * t**2) + 4 * 32**2 * t + 20 * 32**2 + 4 * 32 * t for t in range(1, 3001)]
    assert prefixes(s) == pytest.approx(np.mean(below), rel=1e-3)


def test_all_tokens_and_the_last_one() -> None:
    wanted = forward(PARAMS, CONFIG, TOKENS[None])[0]
    np.testing.assert_allclose(ours.whole(PARAMS, CONFIG, TOKENS)()[0], wanted)
    np.testing.assert_allclose(ours.prefix(PARAMS, CONFIG, TOKENS)()[0, 0], wanted[-1], atol=1e-5)
    pytest.importorskip("torch")
    torch = InTorch(PARAMS, CONFIG)
    np.testing.assert_allclose(torch.whole(TOKENS)(), wanted, atol=1e-5)
    np.testing.assert_allclose(torch.prefix(TOKENS)()[0], wanted[-1], atol=1e-5)
    assert ours.hashed(PARAMS, CONFIG, TOKENS)().shape == (1, 40, 256)


def test_kept_keys_and_values_however_often_the_step_is_taken() -> None:
    rng = np.random.default_rng(1)
    keys, values = rng.standard_normal((2, 5, 2, 33, 8), dtype=np.float32)
    call = ours.cached(PARAMS, CONFIG, TOKENS[:5], keys, values)
    wanted = call().copy()
    np.testing.assert_array_equal(call(), wanted)
    pytest.importorskip("torch")
    for other in InTorch(PARAMS, CONFIG).cached(TOKENS[:5], keys, values, 41).values():
        np.testing.assert_allclose(other(), wanted, atol=1e-5)


def test_kept_keys_and_values_in_onnx_runtime() -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    rng = np.random.default_rng(1)
    keys, values = rng.standard_normal((2, 5, 2, 33, 8), dtype=np.float32)
    call = in_onnx.cached(PARAMS, CONFIG, TOKENS[:5], keys, values, 41)
    for _ in range(2):
        np.testing.assert_allclose(call(), ours.cached(PARAMS, CONFIG, TOKENS[:5], keys, values)(), atol=1e-5)


def test_the_recurrence() -> None:
    call = ours.recurrent(PARAMS, CONFIG, TOKENS[:3], elu1())
    twice = np.stack([TOKENS[:3], TOKENS[:3]], axis=1)
    np.testing.assert_allclose(call(), prefill(PARAMS, CONFIG, twice, attention=elu1())[0][:, 1], atol=1e-5)


def test_steps_that_grow_are_summed_over_all_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs t^2, for which calls of prefixes stand here as their t, have the mean n^2 / 3."""
    monkeypatch.setattr(ours, "prefix", lambda params, config, tokens: len(tokens))
    pytest.importorskip("torch")
    s = Setting(3000, 1, heads=1, d=8)

    def raced(calls: Mapping[Any, Any]) -> dict[Any, float]:
        return {key: float(call) ** 2 if isinstance(call, int) else 1.0 for key, call in calls.items()}

    means = races._means(s, (1,), raced)
    (found,) = (mean for key, mean in means.items() if key.name == f"{races.PREFIX}: ours")
    assert found == pytest.approx(3000**2 / 3, rel=1e-3)
    level = [mean for key, mean in means.items() if key.name.startswith("(c)")]
    assert level == pytest.approx([1.0] * len(level))
    assert len(level) >= 3  # more where ONNX Runtime is installed


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns begin at once."""
    for name in ("SETTLE", "WAKE"):
        monkeypatch.setattr(f"kernattn.bench._clock.{name}", 0.0)


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize("steps", [12, 5000])
def test_rows_and_targets(steps: int) -> None:
    told: list[int] = []
    rows = generation([steps], (1, 2), 1, 0.0, heads=2, dim=8, report=lambda rows: told.append(len(rows)))
    assert told == [len(rows)]
    assert {row["batch"] for row in rows} == {1, 2}
    assert all(row["ms_per_step"] > 0 and row["layers"] == (8 if steps == 12 else 16) for row in rows)
    assert {row["ratio"] for row in rows if row["contestant"] == "ours, linear, recurrent"} == {1.0}
    if steps > 4096:
        assert len(rows) == 2
        return
    assert {row["contestant"][:3] for row in rows} >= {"our", "(a)", "(b)", "(c)", "LSH"}
    (first, second) = (row for row in rows if row["contestant"] == "(b) the prefix, every step: ours")
    assert second["ms_per_step"] == pytest.approx(2 * first["ms_per_step"])
    assert first["sequences_per_second"] == pytest.approx(1e3 / (12 * first["ms_per_step"]))
    held = reached([{**row, "n": 784, "batch": 1} for row in rows])
    assert {row["case"] for row in held} == {"generate"}
    assert len(held) >= 1


@pytest.mark.usefixtures("hurried")
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "bench generate --n 12 --batch 2 --heads 2 --dim 8 --rounds 1 --out"
    assert main([*words.split(), str(tmp_path)]) == 0
    rows = json.loads((tmp_path / "bench.json").read_text())["generation"]
    assert sum(" | 12 | 8 | " in line for line in capsys.readouterr().out.splitlines()) == len(rows)


def test_sizes_are_refused_before_any_race() -> None:
    with pytest.raises(ParameterError, match="steps"):
        generation([0])
    with pytest.raises(ParameterError, match="batch"):
        generation([4], (0,))
