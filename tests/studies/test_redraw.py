"""What the study of redraws finds, against a second way to compute it, and what turns its verdicts over."""

from dataclasses import replace

import numpy as np
import pytest

import kernattn as ka
from kernattn.cli import main
from kernattn.studies import PRESETS
from kernattn.studies._presets.redraw import averages

pytest.importorskip("matplotlib")


def of(records, **wanted):
    """The one record with these values."""
    (found,) = (r for r in records if all(r[key] == value for key, value in wanted.items()))
    return found


def exact(q, k, v):
    weights = np.exp(q @ k.T / 4)
    return weights @ v / weights.sum(axis=1, keepdims=True)


def outputs(q, k, v, m, draws):
    """Attention by positive features, (draws, n, e), as the formula says it."""
    rng, both = np.random.default_rng(7), np.concatenate([q, k]) / 2
    found = []
    for _ in range(draws):
        phi = np.exp(both @ rng.standard_normal((16, m)) - np.sum(both**2, axis=1, keepdims=True) / 2)
        estimate = phi[: len(q)] @ phi[len(q) :].T
        found.append(estimate @ v / estimate.sum(axis=1, keepdims=True))
    return np.asarray(found)


def test_the_floor_is_the_squared_bias_of_the_ratio(found):
    """Two independent means of outputs: their errors' product has the squared bias as its mean."""
    records, _, _ = found("redraw")
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape) for shape in ((32, 16), (256, 16), (256, 8)))
    out = outputs(q, k, v, 16, 800) - exact(q, k, v)
    bias2 = np.mean(out[:400].mean(axis=0) * out[400:].mean(axis=0))
    record = of(records, scale=1.0, estimator="positive", m=16)
    width = record["floor_high"] - record["floor_low"]
    assert record["floor_low"] - width < bias2 < record["floor_high"] + width
    assert record["averaged_mean_low"][0] < np.mean(out**2) < record["averaged_mean_high"][0]
    assert record["uniform"] == pytest.approx(np.mean((v.mean(axis=0) - exact(q, k, v)) ** 2), rel=1e-6)


def test_what_redraws_buy(found):
    records, page, _ = found("redraw")
    positive = of(records, scale=1.0, estimator="positive", m=16)
    assert positive["averaged_high"][-1] < positive["uniform"] < positive["averaged_low"][0]
    assert positive["floor_low"] > 0.3 * positive["averaged"][-1]
    assert positive["averaged_high"][-1] < positive["pooled_mean"][-1]  # the sums keep their tails, outputs do not:
    assert positive["pooled_mean_low"][-1] is None  # few redraws carry their mean
    assert not positive["pooled_mean_settled"][-1]
    small = of(records, scale=0.25, estimator="positive", m=64)
    np.testing.assert_allclose(small["averaged_mean"], small["averaged_second_order"], rtol=0.5)
    np.testing.assert_allclose(small["pooled_mean"], small["averaged_mean"], rtol=0.1)
    assert not any(name.endswith("_predicted") for name in positive)  # the delta method leaves terms out
    signed = of(records, scale=1.0, estimator="trigonometric", m=16)
    assert all(r["averaged_second_order"] is None for r in records if r["signed"])  # it is about means
    assert signed["signed"]
    assert signed["floor_low"] is None
    assert signed["averaged_low"][-1] > signed["uniform"]
    assert "- Holds at scale 0.25 for positive features" in page
    assert "- Holds in part at scale 1 for positive features" in page
    assert "- Does not hold at scale 1 for trigonometric features" in page


@pytest.mark.parametrize("estimator", ["positive", "hyperbolic", "trigonometric"])
def test_averaged_sums_are_those_of_one_map_of_all_frequencies(estimator):
    q, k, v = 0.5 * np.random.default_rng(1).standard_normal((3, 20, 4))
    maps = [ka.random_features(ka.kernels.Softmax(), 4, 8, estimator, "iid", rng=seed) for seed in range(5)]
    numerators, normalisers = averages(maps, q, k, v)
    whole = replace(maps[0], omega=np.concatenate([phi.omega for phi in maps]))
    np.testing.assert_allclose(
        numerators.mean(axis=0) / normalisers.mean(axis=0)[:, None], ka.linear_attention(q, k, v, whole), rtol=1e-9
    )


def test_verdicts_can_turn_over(found):
    records, _, _ = found("redraw")
    verdicts = PRESETS["redraw"].sentences
    of_no_use = [r | {f"averaged{end}": [1.0] * len(r["redraws"]) for end in ("", "_low", "_high")} for r in records]
    assert all(text.startswith("Does not hold") for text in verdicts(of_no_use)[:4])
    wide = {"averaged_low": [1e-9] * len(records[0]["redraws"]), "averaged_high": [1e9] * len(records[0]["redraws"])}
    signed = [r | wide for r in records if r["signed"]]
    assert verdicts(signed)[0].startswith("Open at")  # neither a gain nor its absence is seen
    falling = [2.0**-i for i in range(len(records[0]["redraws"]))]
    fine = {f"averaged{end}": falling for end in ("", "_low", "_high")} | {"floor_low": -1.0, "floor_high": 1e-9}
    told = verdicts([r | fine for r in records])
    assert all(text.startswith("Holds at") for text in told[:4])
    assert "No bias is seen: its square is below 1e-09" in told[0]


def test_bad_axes_are_one_line(tmp_path, capsys):
    for words in ("estimator=nope", "scale=0", "redraws=4"):
        out = tmp_path / "out"
        assert main(["study", "redraw", "--quick", "--workers", "0", "--out", str(out), "--set", words]) == 2
        assert capsys.readouterr().err.count("\n") == 1
        assert not out.exists()
