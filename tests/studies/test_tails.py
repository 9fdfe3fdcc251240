"""The study of large deviations: what its quick form finds, its bounds, and verdicts that records can turn over."""

import copy

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from kernattn.errors import ParameterError
from kernattn.studies import PRESETS, study

pytest.importorskip("matplotlib")
verdicts = PRESETS["tails"].sentences


def only(records, **wanted):
    (record,) = (r for r in records if all(r[key] == value for key, value in wanted.items()))
    return record


def at(record, field, length, epsilon):
    return record[field][record["length"].index(length)][record["epsilon"].index(epsilon)]


def test_what_it_finds(found):
    """Orthogonal tails are smaller; trigonometric ones fall fast with m, positive ones do not upwards."""
    records, page, _ = found("tails")
    for estimator in ("trigonometric", "positive", "hyperbolic"):
        pair = {name: only(records, estimator=estimator, projection=name, m=16) for name in ("iid", "orthogonal")}
        assert at(pair["orthogonal"], "upper_high", 1.0, 0.5) < at(pair["iid"], "upper_low", 1.0, 0.5)
    assert page.count("Holds for ") == 3  # the bounds
    assert page.count("Holds in part for ") == 3  # orthogonal tails: some cannot be told from independent ones
    assert page.count("Does not hold upwards for ") == 2
    trig, positive = (only(records, estimator=name, projection="iid", m=64) for name in ("trigonometric", "positive"))
    assert at(trig, "upper", 1.0, 1.0) < 1e-3 < at(positive, "upper_low", 1.0, 1.0)


@pytest.mark.statistical
def test_shares_are_those_of_independent_draws(found):
    """Means of 16 lognormal terms, drawn without kernattn."""
    record = only(found("tails")[0], estimator="positive", projection="iid", m=16)
    u = np.random.default_rng(5).standard_normal((200_000, 16)) * 2**0.5
    error = np.mean(np.exp(u - 1), axis=1) - 1
    for epsilon in record["epsilon"]:
        for field, share in (("upper", np.mean(error > epsilon)), ("lower", np.mean(error < -epsilon))):
            count = 16 * record["estimates"]
            spread = np.sqrt(share * (1 - share) * (1 / count + 1 / 200_000))
            assert abs(at(record, field, 1.0, epsilon) - share) <= 4.5 * spread + 1e-9


def test_bounds_are_those_of_their_definitions(found):
    """Chernoff by quadrature and a minimiser, one jump by the normal tail, Hoeffding and Chebyshev as written."""
    records = found("tails")[0]
    positive, trig = (only(records, estimator=name, projection="iid", m=16) for name in ("positive", "trigonometric"))

    def chernoff(term, above, count):
        def exponent(log_t):
            t = np.exp(log_t)
            mean = integrate.quad(lambda u: np.exp(t * term(u)) * stats.norm.pdf(u), -10, 10)[0]
            return count * (np.log(mean) - t * above)

        return np.exp(optimize.minimize_scalar(exponent, bounds=(-4, 4), method="bounded").fun)

    width = 2**0.5
    down = chernoff(lambda u: -np.exp(width * u - 1), -0.5, 16)
    assert at(positive, "lower_chernoff", 1.0, 0.5) == pytest.approx(down, rel=2e-3)
    up = chernoff(lambda u: np.cos(width * u) * np.e, 2.0, 8)
    assert at(trig, "upper_chernoff", 1.0, 1.0) == pytest.approx(up, rel=2e-3)
    jump = 1 - stats.norm.cdf((np.log(32) + 1) / width) ** 16
    assert at(positive, "upper_jump", 1.0, 1.0) == pytest.approx(jump, rel=1e-6)
    assert positive["upper_chernoff"] is None
    assert at(trig, "hoeffding", 0.5, 1.0) == pytest.approx(2 * np.exp(-8 / (2 * np.exp(0.5))), rel=1e-6)
    assert at(positive, "chebyshev", 1.0, 2.0) == pytest.approx((np.exp(2) - 1) / 16 / 4, rel=1e-6)


def test_verdicts_follow_the_records(found):
    records = found("tails")[0]
    forged = copy.deepcopy(records)
    ones = np.ones((len(forged[0]["length"]), len(forged[0]["epsilon"])))
    for orthogonal, word in ((0.2, "Holds for "), (0.4, "Open for "), (0.6, "Does not hold for ")):
        for r in forged:
            level = 0.4 if r["projection"] == "iid" else orthogonal
            for side in ("upper", "lower", "either"):
                ends = (("", 1), ("_low", 0.9), ("_high", 1.1))
                r |= {f"{side}{end}": (level * f * ones).tolist() for end, f in ends}
        told = verdicts(forged)
        assert sum(each.startswith(word) and "orthogonal frequencies have smaller tails" in each for each in told) == 3
    assert sum(each.startswith("Does not hold for ") and "breaks a bound" in each for each in told) == 3
    for r in forged:
        r |= {
            f"{side}{end}": (0 * ones).tolist()
            for side in ("upper", "lower", "either")
            for end in ("", "_low", "_high")
        }
    told = verdicts(forged)
    assert sum(each.startswith("Open for ") for each in told) == 3
    assert sum(each.startswith("Open upwards for ") for each in told) == 2
    one = copy.deepcopy(records)
    (orthogonal,) = (r for r in one if (r["estimator"], r["projection"], r["m"]) == ("positive", "orthogonal", 16))
    orthogonal["upper_low"][0][0] = orthogonal["upper_high"][0][0] = 1.0
    told = verdicts(one)
    assert any(each.startswith("Holds in part for positive") for each in told)
    assert "Larger, positive features, d 16, ε in brackets: upper, length 0.5, m 16 (0.25)." in told


def test_bad_axes(tmp_path):
    with pytest.raises(ParameterError, match="one of trigonometric, positive, hyperbolic; got 'phase'"):
        study("tails", tmp_path / "out", quick=True, axes={"estimator": ["phase"]})
    assert not (tmp_path / "out").exists()
