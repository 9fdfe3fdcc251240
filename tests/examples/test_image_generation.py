"""The example of image generation in a tiny form: trained, killed, resumed, and drawn from without torch."""

import importlib
import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
FOLDER = Path(__file__).resolve().parents[2] / "examples" / "image_generation"
MODULES = (
    "baselines", "choose", "files", "generate", "images", "judge", "memory", "methods", "pictures", "report", "train",
    "transfer",
)  # fmt: skip


@pytest.fixture(scope="module")
def modules():
    """The modules of the example, by name, which other examples may have too."""
    shadowed = {name: sys.modules.pop(name) for name in MODULES if name in sys.modules}
    sys.path.insert(0, str(FOLDER))
    try:
        yield {name: importlib.import_module(name) for name in MODULES}
    finally:
        sys.path.remove(str(FOLDER))
        for name in MODULES:
            sys.modules.pop(name, None)
        sys.modules.update(shadowed)


@pytest.fixture(scope="module")
def tiny(modules):
    """A task of seconds."""
    return replace(
        modules["train"].TASKS["digits"], steps=24, batch=16, rate=2e-2, dim=16, layers=1, heads=2, hidden=16,
        curve=8, curve_images=20,
    )  # fmt: skip


@pytest.fixture(scope="module")
def digits(modules):
    return modules["images"].load("digits")


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    """As its programs have it, for themselves and not for tests that follow."""
    monkeypatch.setenv("KERNATTN_NUM_THREADS", "1")


def trained(modules, task, method, folder, digits):
    run = modules["train"].Run(task, method, 0, folder)
    run.finish(run.train(*digits))
    return run.path


def test_images_are_split_once_and_for_all(modules, digits):
    learnt, held_out = digits
    assert learnt.tokens.shape == (1497, 64)
    assert held_out.tokens.shape == (300, 64)
    assert learnt.tokens.min() == 0
    assert learnt.tokens.max() == 16
    assert np.bincount(held_out.labels, minlength=10).min() > 15
    assert_array_equal(modules["images"].load("digits")[1].tokens, held_out.tokens)


def test_a_model_that_knows_nothing_needs_all_bits(modules, tiny, digits):
    train = modules["train"]
    run = train.Run(tiny, "softmax", 0, Path())
    with torch.no_grad():
        run.params["output.weight"].zero_()
    tokens = torch.tensor(digits[1].tokens[:30])
    assert train.bits(run.params, run.config, tokens, None) == pytest.approx(np.log2(17), abs=1e-6)


@pytest.mark.parametrize("method", ["softmax", "linear", "favor", "relu", "smreg"])
def test_a_pixel_is_predicted_from_those_before_it(modules, tiny, digits, method):
    train = modules["train"]
    run = train.Run(tiny, method, 0, Path())
    tokens = torch.tensor(digits[1].tokens[:2])
    other = tokens.clone()
    other[:, 20:] = 16 - other[:, 20:]

    def logits(x):
        with torch.no_grad():
            return train.forward(run.params, run.config, train.shifted(x), attention=run.attention(0))

    apart = (logits(tokens) - logits(other)).abs().amax(dim=(0, 2))
    assert apart[:21].max() < 1e-5
    assert apart[21] > 1e-3


SLOW = [pytest.param(method, marks=pytest.mark.slow) for method in ("trigonometric", "lsh")]


@pytest.mark.parametrize("method", ["linear", "favor-redrawn", *SLOW])
def test_a_run_that_was_killed_goes_on_to_the_same_bits(modules, tiny, digits, method, tmp_path, monkeypatch):
    train = modules["train"]
    monkeypatch.setattr(modules["methods"], "REDRAW", 5)
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    whole = trained(modules, tiny, method, tmp_path / "whole", digits)

    class Killed(train.Run):
        def advance(self, tokens):
            if self.step == 13:
                raise KeyboardInterrupt
            return super().advance(tokens)

    with pytest.raises(KeyboardInterrupt):
        Killed(tiny, method, 0, tmp_path / "killed").train(*digits)
    resumed = train.Run(tiny, method, 0, tmp_path / "killed")
    resumed.load()
    assert resumed.step == 8
    resumed = trained(modules, tiny, method, tmp_path / "killed", digits)
    records = [json.loads(path.with_suffix(".json").read_text()) for path in (whole, resumed)]
    for record in records:
        del record["cpu_seconds"]
        record["curve"] = [[row[0], *row[2:]] for row in record["curve"]]
    assert records[0] == records[1]
    if method == "trigonometric":
        assert records[0]["share_of_normalisers_at_most_0"] > 0
    else:
        assert records[0]["share_of_normalisers_at_most_0"] == 0
        assert records[0]["curve"][0][2] > records[0]["curve"][-1][2]
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == [f"{whole.name}.json", f"{whole.name}.npz"]
    with np.load(whole.with_suffix(".npz")) as a, np.load(resumed.with_suffix(".npz")) as b:
        for name in a.files:
            assert_array_equal(a[name], b[name])


def test_a_checkpoint_of_another_task_is_refused(modules, tiny, tmp_path):
    train = modules["train"]
    run = train.Run(tiny, "linear", 0, tmp_path)
    run.advance(torch.zeros(2, 64, dtype=torch.int64))
    run.save()
    with pytest.raises(SystemExit, match="another task"):
        train.Run(replace(tiny, batch=8), "linear", 0, tmp_path).load()


@pytest.mark.slow
def test_images_are_drawn_and_completed(modules, tiny, digits, tmp_path):
    found = modules["generate"].model(trained(modules, tiny, "favor", tmp_path, digits))
    upper = digits[1].tokens[:12, :32]
    images = found.draw(upper)
    assert images.shape == (12, 64)
    assert_array_equal(images[:, :32], upper)
    assert images.min() >= 0
    assert images.max() <= 16
    assert_array_equal(found.draw(upper), images)
    assert np.any(found.draw(upper, seed=1) != images)
    verdicts = modules["generate"].drawn(found, 40, tmp_path, "tiny")
    assert set(verdicts) == {"drawn", "held out", "independent pixels"}
    assert sum(verdicts["drawn"]["counts"]) == 40
    for name, rows in (("samples", 4), ("completions", 5)):
        with modules["pictures"].Image.open(tmp_path / f"tiny-{name}.png") as picture:
            assert picture.size == (10 * 72 + 8, rows * 72 + 8)


def test_the_judge_knows_digits_from_what_is_none(modules, digits):
    learnt, held_out = digits
    judge = modules["judge"].Judge("digits", learnt)
    real = judge(held_out.tokens, held_out.labels)
    none = judge(modules["judge"].independent_pixels(learnt, 300, np.random.default_rng(0)))
    assert real.accuracy > 0.95
    assert real.confidence > none.confidence + 0.1
    assert min(real.counts) > 15


def test_the_state_of_linear_attention_does_not_grow(modules, monkeypatch):
    memory = modules["memory"]
    monkeypatch.setattr(memory, "MOST", {"linear": 11, "softmax": 11})
    linear, softmax = ([row["state"] for row in memory.measure(kind)] for kind in ("linear", "softmax"))
    assert linear[0] == linear[1]
    assert softmax[1] > 1.9 * softmax[0]


def test_what_is_done_is_not_done_again(modules, tmp_path, monkeypatch):
    train = modules["train"]
    for seed in range(3):
        (tmp_path / f"digits-linear-{seed}.json").write_text("{}")
    monkeypatch.setattr(train.Run, "train", lambda *_: pytest.fail("trained again"))
    train.main(["digits", "--methods", "linear", "--out", str(tmp_path)])
    with pytest.raises(SystemExit):
        train.main([])


def test_settings_are_judged_by_images_that_are_not_held_out(modules, digits, tmp_path, monkeypatch):
    choose = modules["choose"]
    learnt, judges = choose.split(digits[0])
    assert [len(part.tokens) for part in (learnt, judges)] == [1297, 200]
    assert_array_equal(np.concatenate([judges.tokens, learnt.tokens]), digits[0].tokens)
    settled = choose.Setting("favor-redrawn", redraw=2, settled=0.5)
    assert [choose.Trial(settled, 12).draw(step) for step in range(12)] == [0, 0, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2]
    few = [choose.Images(*(part[:40] for part in images)) for images in (learnt, judges)]
    row = choose.tried(settled, *few, steps=3)
    assert row["bits"] != row["bits_of_a_new_draw"]
    monkeypatch.setattr(choose, "TRIED", tmp_path / "tried.jsonl")
    monkeypatch.setattr(choose, "tried", lambda setting, *_: asdict(setting) | {"bits": 1.0})
    for _ in range(2):
        choose.main()
    assert len((tmp_path / "tried.jsonl").read_text().splitlines()) == len(choose.SETTINGS)


def test_a_method_settles_on_the_draw_of_a_quarter_of_its_steps(modules):
    draw_at = modules["methods"].draw_at
    assert [draw_at("favor-settled", step, 100) for step in (0, 19, 20, 24, 25, 99)] == [0, 0, 1, 1, 1, 1]
    assert [draw_at("favor-redrawn", step, 100) for step in (49, 50, 99)] == [2, 2, 4]
    assert draw_at("favor", 99, 100) == 0


def test_counts_of_levels(modules, digits):
    images, count = modules["images"], modules["baselines"]
    alternating = images.Images(np.tile([0, 1], (500, 4)), np.zeros(500))
    assert count.of_places(alternating, alternating, 2) < 1e-3
    drawn = images.Images(np.random.default_rng(0).integers(2, size=(2000, 8)), np.zeros(2000))
    assert count.of_places(drawn, drawn, 2) == pytest.approx(1.0, abs=2e-3)
    assert count.of_the_pixel_before(drawn, drawn, 2) == pytest.approx(1.0, abs=2e-3)
    found = {knows: of(*digits, 17) for knows, of in count.BASELINES.items()}
    assert found == pytest.approx(modules["report"].kept().baselines["digits"])


def test_the_page_says_what_the_records_say(modules):
    report = modules["report"]
    page = report.PAGE.read_text(encoding="utf-8")
    assert report.filled(page, report.kept()) == page


def test_shipped_models_are_small_and_drawn_from_without_torch(modules, tmp_path):
    generate = modules["generate"]
    paths = [generate.TRAINED / f"{name}.npz" for name in generate.SHIPPED]
    assert sum(path.stat().st_size for path in paths) < 2e6
    code = f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import generate; generate.main(sys.argv[1:])"
    code += "; assert 'torch' not in sys.modules"
    command = [sys.executable, "-c", code, str(paths[0]), "--count", "10", "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    assert {path.suffix for path in tmp_path.iterdir()} == {".png", ".json"}


def test_a_trained_model_is_taken_over(modules, tmp_path, monkeypatch):
    monkeypatch.setattr("kernattn.features._fitted.learn.STEPS", 30)
    rows = modules["transfer"].run(tmp_path, [0], 20, 1, features=16)
    bits = {row["attention"]: row["bits"] for row in rows}
    assert bits["softmax"] < bits["fitted maps"] < min(found for name, found in bits.items() if "FAVOR+" in name)
    assert all(row["after"] < 6 for row in rows)
