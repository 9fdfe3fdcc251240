"""The study end to end: records that can be checked, figures that are there, words that fit the numbers."""

import numpy as np
import pytest
from scipy import stats

import oracles
from kernattn.errors import ParameterError
from kernattn.features import random_features
from kernattn.kernels import Softmax
from kernattn.metrics import attention_delta_method, attention_mse, ratio_delta_method
from kernattn.studies import PRESETS, figures, read_records, study

VERDICTS = PRESETS["attention"].sentences
FILES = {"records.jsonl", "config.json", "summary.md"} | {
    f"{name}.{form}" for name in ("attention_mse", "kernel_mse", "bias", "variance") for form in ("pdf", "png", "svg")
}


@pytest.fixture(scope="session")
def small(tmp_path_factory, tokens_file):
    """Folder, records, and the arrays of one small study."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("study")
    records = study("attention", folder, draws=64, axes={"m": [4, 16]}, data=tokens_file)
    with np.load(tokens_file) as file:
        return folder, records, {name: file[name].astype(np.float64) for name in "qkv"}


def test_files(small):
    folder, records, _ = small
    assert {path.name for path in folder.iterdir()} == FILES
    assert all(path.stat().st_size > 100 for path in folder.iterdir())
    assert read_records(folder) == records
    assert len(records) == 20
    for name in ("attention_mse", "kernel_mse", "bias", "variance"):
        assert "uniform attention" in (folder / f"{name}.svg").read_text()


def test_uniform_baseline(small):
    _, records, arrays = small
    exact, _ = oracles.softmax_attention(arrays["q"], arrays["k"], arrays["v"])
    expected = np.mean((arrays["v"].mean(axis=0) - exact) ** 2)
    assert [record["uniform_attention_mse"] for record in records] == pytest.approx([expected] * 20, rel=1e-7)
    sums = np.sum((arrays["q"][:, None] + arrays["k"]) ** 2, axis=-1) * 5**-0.5
    assert records[0]["v2_median"] == pytest.approx(np.median(sums), rel=1e-7)
    assert records[0]["v2_max"] == pytest.approx(sums.max(), rel=1e-7)


def test_record_can_be_drawn_again(small):
    """From the seeds it names: draw r is SeedSequence(entropy, spawn_key + r)."""
    _, records, arrays = small
    exact, _ = oracles.softmax_attention(arrays["q"], arrays["k"], arrays["v"])
    kernel = oracles.softmax_kernel(arrays["q"], arrays["k"])
    for record in (r for r in records if r["m"] == 16):
        data = np.concatenate([arrays["q"], arrays["k"]])
        grams = []
        for r in range(record["draws"]):
            seed = np.random.SeedSequence(record["seed"]["entropy"], spawn_key=(*record["seed"]["spawn_key"], r))
            phi = random_features(Softmax(), 5, 16, record["estimator"], record["projection"], data=data, rng=seed)
            grams.append(phi(arrays["q"]) @ phi(arrays["k"]).T)
        grams = np.stack(grams)
        totals = grams.sum(axis=-1, keepdims=True)
        errors = attention_mse(grams @ arrays["v"] / totals, exact)
        assert record["attention_mse"] == pytest.approx(np.median(errors), rel=1e-6)
        assert record["attention_mse_mean"] == pytest.approx(np.mean(errors), rel=1e-5)
        assert record["kernel_mse"] == pytest.approx(np.mean((grams - kernel) ** 2), rel=1e-7)
        assert record["bias_pairs"] > 0.9 * kernel.size
        if record["bias_pairs"] == kernel.size:
            assert record["bias"] == pytest.approx(grams.mean() / kernel.mean() - 1, abs=1e-7)
        assert record["nonpositive_normalisers"] == np.mean(totals <= 0)
        check_delta_method(record, phi, arrays, exact, grams)
    assert any(record["bias_pairs"] == kernel.size for record in records)


def check_delta_method(record, phi, arrays, exact, grams):
    """By the closed form of as many frequencies, or by redraws that are not the ones it is held against."""
    q, k, v = (arrays[name] for name in "qkv")
    outputs, totals = grams @ v / grams.sum(axis=-1, keepdims=True), grams.sum(axis=-1)
    if record["delta_moments"] == "closed form":
        delta = attention_delta_method(q, k, v, phi)
        trusted = delta.trusted
    else:
        half = len(grams) // 2
        delta, outputs = ratio_delta_method((grams @ v)[:half], totals[:half]), outputs[half:]
        trusted = np.ones(len(q), bool)  # below where all rows are
    assert record["delta_queries"] == len(q)
    if record["delta_moments"] == "closed form" or record["delta_rows"] == 1:
        squares = delta.variance + delta.bias**2
        assert record["delta_rows"] == pytest.approx(trusted.mean(), rel=1e-7)
        assert record["delta_mse"] == pytest.approx(np.mean(squares[trusted]), rel=1e-6)
        errors = attention_mse(outputs[:, trusted], exact[trusted])
        assert record["delta_mse_measured"] == pytest.approx(np.mean(errors), rel=1e-5)


@pytest.mark.statistical
def test_formulas_hold(small):
    """Predicted variance, bias and kernel error against the redraws, on tokens whose tails 64 redraws see."""
    _, records, _ = small
    quantile = stats.t.ppf(0.975, 63)
    for record in records:
        for name, expected in (
            ("bias", record["bias_predicted"]),
            ("variance_ratio", 1.0),
            ("kernel_relative_mse", record["kernel_relative_mse_predicted"]),
        ):
            if record[f"{name}_low"] is None:
                assert name == "kernel_relative_mse"  # of exponential maps, whose squares have a longer tail
                assert record["estimator"] not in ("trigonometric", "phase")
                continue
            sd = (record[f"{name}_high"] - record[f"{name}_low"]) / 2 / quantile
            assert abs(record[name] - expected) < 4.5 * sd, (record["cell"], name)
        bounded = record["estimator"] in ("trigonometric", "phase")
        assert record["variance_pairs"] > (0.9 if bounded else 0.05) * record["pairs"]


@pytest.mark.statistical
def test_delta_method_explains_the_error(small):
    _, records, _ = small
    for record in records:
        closed = record["projection"] == "iid" and record["estimator"] != "phase"
        assert record["delta_moments"] == ("closed form" if closed else "redraws")
        if record["m"] == 16 and record["estimator"] != "phase":
            least, most = (0.8, 1.25) if closed else (0.6, 1.6)
            assert record["delta_rows"] >= 0.3
            assert least < record["delta_mse"] / record["delta_mse_measured"] < most, record["cell"]


@pytest.mark.usefixtures("no_figures")
def test_delta_method_trusts_no_unseen_tail(tmp_path):
    """At |q' + k'|^2 of 30 a few redraws of positive features look alike; the closed form knows their tail."""
    q, k, v = np.random.default_rng(8).standard_normal((3, 20, 4))
    np.savez(tmp_path / "mine.npz", q=4 * q, k=4 * k, v=v)
    axes = {"estimator": ["positive"], "projection": ["orthogonal"], "m": [64]}
    (record,) = study("attention", tmp_path / "out", draws=8, axes=axes, data=tmp_path / "mine.npz")
    assert (record["delta_moments"], record["delta_queries"], record["delta_rows"]) == ("redraws", 16, 0)
    assert record.get("delta_mse") is None


def test_summary_says_what_the_records_say(small):
    folder, records, _ = small
    text = (folder / "summary.md").read_text()
    for verdict in VERDICTS(records):
        assert f"- {verdict}\n" in text
    assert all(f"]({name})" in text for name in FILES if name.endswith(".png"))
    assert text.count("| trigonometric | iid |") >= 1


def hopeless(**changed):
    """Records of one estimator at two m, no better than uniform attention."""
    record = {
        "dataset": "d",
        "estimator": "positive",
        "projection": "iid",
        "uniform_attention_mse": 1.0,
        "attention_mse": 1.2,
        "attention_mse_low": 1.1,
        "attention_mse_high": 1.3,
        "v2_median": 30.0,
    }
    return [record | {"m": m} | changed for m in (16, 32)]


def test_verdicts():
    (text,) = VERDICTS(hopeless())
    assert text.startswith(
        "d: no approximation is shown to be better than uniform attention at m = 16, 32: use exact attention here."
    )
    assert "positive (iid), has 1.2 times the error" in text
    (text,) = VERDICTS(hopeless(attention_mse=0.9, attention_mse_low=0.8, attention_mse_high=1.01))  # within noise
    assert "is shown to be better than uniform attention at m = 16, 32; open at m = 32: positive (iid)." in text
    assert "use exact" not in text
    works = {"attention_mse": 0.1, "attention_mse_low": 0.09, "attention_mse_high": 0.11}
    (text,) = VERDICTS([hopeless()[0], hopeless()[1] | works])
    assert "at m = 32 positive (iid) is best, with 10 times less error than uniform attention." in text
    assert "Nothing is shown to be better than uniform attention at m = 16." in text
    bad = hopeless()[1] | {"estimator": "phase"}
    (text,) = VERDICTS([hopeless(**works)[1], bad])
    assert "No better than uniform attention at m = 32: phase (iid)." in text
    (text,) = VERDICTS(hopeless(attention_mse=None, attention_mse_low=None, attention_mse_high=None))
    assert "no attention output stayed finite" in text


def test_wild_norms_leave_no_numbers_but_no_failure(tmp_path, no_figures):
    """At |q'|^2 of 10^5 the kernel leaves float64: its fields are null and have no figure, attention's are not."""
    pytest.importorskip("matplotlib")
    q, k, v = np.random.default_rng(3).standard_normal((3, 12, 4))
    np.savez(tmp_path / "wild.npz", q=300 * q, k=300 * k, v=v)
    records = study("attention", tmp_path / "out", draws=6, axes={"m": [8]}, data=tmp_path / "wild.npz")
    assert all(record["kernel_mse"] is None for record in records)
    assert all(record["attention_mse"] is not None for record in records if "positive" in record["estimator"])
    drawn = [file.stem for file in figures(tmp_path / "out", formats=["svg"])]
    assert "attention_mse" in drawn
    assert not [name for name in drawn if name.startswith("kernel")]


ROWS, VALUES = np.random.default_rng(5).standard_normal((2, 12, 4))


@pytest.mark.usefixtures("no_figures")
@pytest.mark.parametrize(
    ("q", "k", "v"),
    [
        (ROWS, 0 * ROWS + ROWS[0], VALUES),
        (0 * ROWS, ROWS, VALUES),
        (ROWS, ROWS, 0 * VALUES + 0.1),
        (ROWS, ROWS, 0 * VALUES),
    ],
    ids=["equal keys", "queries of 0", "equal values", "values of 0"],
)
def test_where_uniform_attention_is_exact(q, k, v, tmp_path):
    """Its error is 0, not the rounding of one summation or another; nothing is better, and the study says so."""
    np.savez(tmp_path / "mine.npz", q=q, k=k, v=v)
    axes = {"estimator": ["positive", "phase"], "m": [8, 16]}
    records = study("attention", tmp_path / "out", draws=6, axes=axes, data=tmp_path / "mine.npz")
    assert {record["uniform_attention_mse"] for record in records} == {0}
    (text,) = VERDICTS(records)
    assert text.startswith("mine@1: uniform attention is exact here, so no approximation is better. At m = 16 the")
    exact = all(record["attention_mse"] == 0 for record in records)
    assert exact == (q is ROWS)  # equal keys or values: whatever the weights
    assert text in (tmp_path / "out" / "summary.md").read_text()


def test_figures_where_uniform_attention_is_exact(tmp_path, no_figures):
    """All logits 0: a logarithmic axis has no level to draw, and the best constant kernel no error to measure by."""
    pytest.importorskip("matplotlib")
    np.savez(tmp_path / "mine.npz", q=0 * ROWS, k=0 * ROWS, v=VALUES)
    axes = {"estimator": ["positive"], "projection": ["iid"], "m": [8]}
    study("attention", tmp_path / "out", draws=6, axes=axes, data=tmp_path / "mine.npz")
    figures(tmp_path / "out", formats=["svg"])
    assert "uniform attention is exact" in (tmp_path / "out" / "attention_mse.svg").read_text()


@pytest.mark.usefixtures("no_figures")
def test_a_small_error_is_not_taken_for_rounding(tmp_path):
    np.savez(tmp_path / "mine.npz", q=ROWS, k=ROWS, v=1e-3 * VALUES)
    axes = {"estimator": ["positive"], "projection": ["iid"], "m": [8]}
    (record,) = study("attention", tmp_path / "out", draws=6, axes=axes, data=tmp_path / "mine.npz")
    assert 1e-8 <= record["uniform_attention_mse"] <= 1e-6


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"axes": {"estimator": ["positive", "fourier"]}}, "estimator must be one of .*'fourier'"),
        ({"axes": {"estimator": [[]]}}, "estimator must hold strings"),
        ({"axes": {"projection": ["nonsense"]}}, "projection must be .*'nonsense'"),
        ({"axes": {"source": ["paris"]}}, "source must be one of china, flower, digits; got 'paris'"),
        ({"axes": {"source": "china"}}, "source must be a list of at least one value; got 'china'"),
        ({"axes": {"m": []}}, "m must be a list of at least one value"),
        ({"axes": {"m": [8, 8]}}, "m must not repeat"),
        ({"axes": {"m": [9]}}, "m must be even, .* got 9"),
        ({"axes": {"m": ["a"]}}, "m takes positive integers, .* got 'a'"),
        ({"axes": {"scale": [float("nan")]}}, "scale must hold .* finite floats; got nan"),
        ({"axes": {"scale": ["a"]}}, "scale takes positive numbers, .* got 'a'"),
        ({"axes": {"queries": [8, 16]}}, "queries takes one value; got 8, 16"),
        ({"axes": {"keys": [9]}, "data": "mine.npz"}, "source and keys are those of the file"),
        ({"draws": 5}, "draws must be an integer, at least 6; got 5"),
        ({"seed": -1}, "seed must be an integer, at least 0; got -1"),
        ({"seed": 2.0}, "seed must be an integer, at least 0; got 2.0"),
    ],
)
def test_what_is_asked_is_checked(given, message, tmp_path):
    with pytest.raises(ParameterError, match=message):
        study("attention", tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


def test_the_table_of_winners_calls_open_what_its_interval_leaves_open(small):
    record = small[1][0] | {"estimator": "positive", "projection": "iid", "uniform_attention_mse": 1.5}
    for value, low, high, mark in (
        (1.0, 0.5, 1.2, ""),
        (1.0, 0.5, 2.0, " (open against uniform)"),
        (2.0, 1.8, 2.2, " (no better than uniform)"),
    ):
        told = record | {"attention_mse": value, "attention_mse_low": low, "attention_mse_high": high}
        assert f"| positive, iid{mark} |" in PRESETS["attention"].page([told], [])
