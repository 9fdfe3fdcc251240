"""The study end to end: records that can be checked, figures that are there, words that fit the numbers."""

import numpy as np
import pytest
from scipy import stats

import oracles
from kernattn.errors import ParameterError
from kernattn.features import random_features
from kernattn.kernels import Softmax
from kernattn.metrics import attention_delta_method, attention_mse
from kernattn.metrics._settled import settled
from kernattn.studies import PRESETS, read_records, study
from kernattn.studies._presets.attention.delta import Independent, delta_fields
from kernattn.studies._presets.attention.problem import Problem
from kernattn.studies._presets.attention.report import _winner
from kernattn.studies._presets.attention.tokens import Tokens

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
        sure = settled(
            phi, *(arrays[name][i.ravel()] for name, i in zip("qk", np.indices(kernel.shape), strict=True)), 64
        )
        sure = sure.reshape(kernel.shape)
        assert record["bias_pairs"] == sure.sum() > 0.9 * sure.size
        assert record["bias"] == pytest.approx(grams[:, sure].mean() / kernel[sure].mean() - 1, abs=1e-7)
        assert record["nonpositive_normalisers"] == np.mean(totals <= 0)


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


@pytest.mark.parametrize("estimator", ["trigonometric", "positive", "hyperbolic", "optimal_positive"])
def test_delta_method_of_the_study(estimator):
    """By the closed form of as many frequencies, or by redraws that are not the ones it is held against."""
    q, k, v = 0.3 * np.random.default_rng(6).standard_normal((3, 20, 4))
    problem = Problem(Tokens("t", "", q, k, v), seed=0)
    independent = Independent.of(problem, estimator)
    rng = np.random.default_rng(7)
    outputs, normalisers = 0.01 * rng.standard_normal((8, 20, 4)), 20 + 0.1 * rng.standard_normal((8, 20))
    data = np.concatenate([q, k])
    iid, orthogonal = (
        random_features(Softmax(), 4, 256, estimator, p, data=data, rng=0) for p in ("iid", "orthogonal")
    )
    found = delta_fields(problem, iid, independent, outputs, normalisers)
    expected = attention_delta_method(q[independent.rows], k, v, iid)
    assert found["delta_rows"] == expected.trusted.mean() > 0
    squares = expected.variance + expected.bias**2
    assert found["delta_mse"] == pytest.approx(np.mean(squares[expected.trusted]))
    halves = outputs.copy()
    halves[4:] = 0
    drawn, other = (delta_fields(problem, orthogonal, independent, each, normalisers) for each in (outputs, halves))
    assert drawn["delta_mse"] == other["delta_mse"] > 0
    assert drawn["delta_mse_measured"] != other["delta_mse_measured"]


def test_delta_method_trusts_no_unseen_tail():
    """At |q' + k'|^2 of 30 a few redraws of positive features look alike; the closed form knows their tail."""
    q, k, v = np.random.default_rng(8).standard_normal((3, 20, 4))
    problem = Problem(Tokens("t", "", 4 * q, 4 * k, v), seed=0)
    outputs, normalisers = np.zeros((8, 20, 4)), 1 + 1e-3 * np.random.default_rng(9).standard_normal((8, 20))
    phi = random_features(Softmax(), 4, 64, "positive", "orthogonal", rng=0)
    found = delta_fields(problem, phi, Independent.of(problem, "positive"), outputs, normalisers)
    assert found == {"delta_moments": "redraws", "delta_queries": 16, "delta_rows": 0.0}


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


def test_wild_norms_leave_no_numbers_but_no_failure(tmp_path):
    """At |q'|^2 of 10^5 the kernel leaves float64: its fields are null, attention's are not."""
    pytest.importorskip("matplotlib")
    q, k, v = np.random.default_rng(3).standard_normal((3, 12, 4))
    np.savez(tmp_path / "wild.npz", q=300 * q, k=300 * k, v=v)
    records = study("attention", tmp_path / "out", draws=6, axes={"m": [8]}, data=tmp_path / "wild.npz")
    assert all(record["kernel_mse"] is None for record in records)
    assert all(record["attention_mse"] is not None for record in records if "positive" in record["estimator"])
    assert {path.name for path in (tmp_path / "out").iterdir()} >= FILES


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


def test_figures_where_uniform_attention_is_exact(tmp_path):
    """All logits 0: a logarithmic axis has no level to draw, and the best constant kernel no error to measure by."""
    pytest.importorskip("matplotlib")
    np.savez(tmp_path / "mine.npz", q=0 * ROWS, k=0 * ROWS, v=VALUES)
    axes = {"estimator": ["positive"], "m": [8]}
    study("attention", tmp_path / "out", draws=6, axes=axes, data=tmp_path / "mine.npz")
    assert "uniform attention is exact" in (tmp_path / "out" / "attention_mse.svg").read_text()


@pytest.mark.parametrize(("size", "low", "high"), [(1e200, np.inf, np.inf), (1e-3, 1e-8, 1e-6)])
def test_sizes_of_values(size, low, high):
    """An error that leaves float64 is infinite, and a small one is not taken for rounding."""
    with np.errstate(over="ignore"):
        facts = Problem(Tokens("t", "", ROWS, ROWS, size * VALUES), seed=0).facts
    assert low <= facts["uniform_attention_mse"] <= high


def test_problem_is_exact_attention():
    q, k, v = np.random.default_rng(4).standard_normal((3, 7, 4))
    problem = Problem(Tokens("t", "", q, k, v), seed=0)
    exact, _ = oracles.softmax_attention(q, k, v)
    np.testing.assert_allclose(problem.exact, exact, rtol=1e-12)
    np.testing.assert_allclose(problem.entries.reshape(7, 7), oracles.softmax_kernel(q, k), rtol=1e-12)
    sums = (q[:, None] + k[None]) * 4**-0.25
    np.testing.assert_allclose(problem.square_sums.reshape(7, 7), np.sum(sums**2, axis=-1), rtol=1e-12)


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


def test_the_table_of_winners_calls_open_what_its_interval_leaves_open():
    row = {"estimator": "positive", "projection": "iid", "attention_mse": 1.0, "uniform_attention_mse": 1.5}
    for low, high, mark in ((0.5, 1.2, ""), (0.5, 2.0, " (open against uniform)")):
        assert _winner([row | {"attention_mse_low": low, "attention_mse_high": high}]) == f"positive, iid{mark}"
    lost = row | {"attention_mse": 2.0, "attention_mse_low": 1.8, "attention_mse_high": 2.2}
    assert _winner([lost]) == "positive, iid (no better than uniform)"
