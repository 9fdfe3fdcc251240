"""The study of regression: its errors against plain linear algebra, what it finds, and verdicts that can turn."""

import numpy as np
import pytest

from kernattn.errors import ParameterError
from kernattn.kernels import Gaussian
from kernattn.studies import PRESETS, study
from kernattn.studies._presets.regression import DATA, _left_out, _problem, _ratio, _rows

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")
VERDICTS = PRESETS["regression"].sentences


def gram(x, y, lengthscale):
    return np.exp(-np.sum((x[:, None] - y) ** 2, axis=-1) / (2 * lengthscale**2))


def test_left_out_errors_are_those_of_fits_without_the_row():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((12, 3)), rng.standard_normal((12, 2))
    error, _, ridge = _left_out(Gaussian(1.5), x, y)
    k = gram(x, x, 1.5)
    by_hand = {}
    for each in 10.0 ** np.arange(-5, 3):
        left = []
        for i in range(12):
            rest = np.arange(12) != i
            weights = np.linalg.solve(k[np.ix_(rest, rest)] + each * np.eye(11), y[rest])
            left.append(y[i] - k[i, rest] @ weights)
        by_hand[each] = np.mean(np.square(left))
    assert ridge == min(by_hand, key=by_hand.__getitem__)
    assert error == pytest.approx(by_hand[ridge], rel=1e-9)


@pytest.mark.parametrize("name", ["diabetes", "digits_class"])
def test_exact_error_is_that_of_plain_linear_algebra(name):
    given = _problem(*_rows(name), DATA[name], 3)
    k = gram(given.x, given.x, given.kernel.lengthscale)
    weights = np.linalg.solve(k + given.ridge * np.eye(len(k)), given.y)
    predicted = gram(given.test_x, given.x, given.kernel.lengthscale) @ weights + given.mean
    if name == "diabetes":
        expected = np.mean((predicted - given.test_y) ** 2) / np.var(given.test_y)
    else:
        expected = np.mean(predicted.argmax(axis=1) != given.test_y.argmax(axis=1))
    assert given.exact == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(given.x.mean(axis=0), 0.0, atol=1e-10)
    assert len(given.x) + len(given.test_x) <= {"diabetes": 442, "digits_class": 1797}[name]


def test_ratio_has_the_spread_of_a_ratio_of_means():
    """Its standard error is that of ratios of independent samples; what both have in common cancels."""
    rng = np.random.default_rng(1)
    common = rng.lognormal(size=(400, 100))
    above, below = 0.9 * common * rng.lognormal(0, 0.1, common.shape), common * rng.lognormal(0, 0.1, common.shape)
    told = [_ratio(a[:, None], b[:, None]) for a, b in zip(above, below, strict=True)]
    ratios = above.mean(axis=1) / below.mean(axis=1)
    np.testing.assert_allclose([each.mean() for each in told], ratios, rtol=1e-12)
    assert np.mean([each.std() / 10 for each in told]) == pytest.approx(ratios.std(), rel=0.15)
    assert ratios.std() < 0.3 * (above.mean(axis=1).std() / below.mean())


def test_finds(found):
    """A better kernel helps regression little; landmarks help it much on digits; neither matters on diabetes."""
    records, page, _ = found("regression")
    by = {(r["data"], r["map"]): r for r in records}
    assert len(by) == 6
    for data in ("diabetes", "digits_class"):
        orthogonal = by[data, "orthogonal"]
        assert all(high < 1 for high in orthogonal["kernel_over_iid_high"])
        assert 1 - orthogonal["pooled_kernel"] > 2 * (1 - orthogonal["pooled_error"])
        assert by[data, "iid"]["error_over_iid"] == [1.0, 1.0]
        assert by[data, "iid"]["exact"] == by[data, "uniform"]["exact"]  # the same splits for every map
    assert by["digits_class", "uniform"]["pooled_error_high"] < 0.8
    assert min(by["digits_class", "orthogonal"]["error_over_exact_low"]) > 1.3
    np.testing.assert_allclose(by["diabetes", "iid"]["error_over_exact"], 1.0, atol=0.1)
    assert "Holds: orthogonal frequencies estimate the kernel better" in page
    assert "Holds on digits class: uniform landmarks err less in regression" in page


def word(records, holding):
    (told,) = (verdict for verdict in VERDICTS(records) if holding in verdict.replace(": whether ", ": "))
    return told.split(":")[0].split(" on ")[0]


def forged(records, field, value, low, high, **where):
    """The records with another interval at some of them."""
    ends = {field: value, f"{field}_low": low, f"{field}_high": high}
    return [r | ends if all(r[k] == v for k, v in where.items()) else r for r in records]


def test_verdicts_turn(found):
    records, _, _ = found("regression")
    claim = "diabetes: orthogonal frequencies gain about 2% of the test error"
    for value, low, high, says in (
        (0.98, 0.975, 0.985, "Holds"),
        (0.98, 0.9, 1.06, "Open"),
        (0.98, 0.92, 0.999, "Open"),  # 2% is inside, and so is four times as much
        (0.8, 0.7, 0.9, "Does not hold"),
        (1.0, 0.995, 1.005, "Does not hold"),
    ):
        assert word(forged(records, "pooled_error", value, low, high, map="orthogonal"), claim) == says
    better = "estimate the kernel better"
    assert word(records, better) == "Holds"
    worse = forged(records, "kernel_over_iid", [1.0, 1.0], [0.9, 0.9], [1.1, 1.1], map="orthogonal")
    assert word(worse, better) == "Open"
    assert word([*worse[:3], *records[3:]], better) == "Holds in part"
    bound = forged(records, "kernel_over_iid", [1.2, 1.2], [1.1, 1.1], [1.3, 1.3], map="orthogonal")
    assert word(bound, better) == "Does not hold"
    alone = forged(records, "kernel_over_iid", [0.95, 1.0], [0.901, 0.9], [0.999, 1.1], map="orthogonal")
    assert word(alone, better) == "Open"  # one of four intervals of 95% that ends below 1 may do so by chance
    less = "diabetes: uniform landmarks err less in regression"
    for highs, says in (([0.9, 0.9], "Holds"), ([0.9, 1.1], "Holds in part"), ([1.1, 1.1], "Open")):
        assert word(forged(records, "error_over_iid", [0.8, 0.8], [0.7, 0.7], highs, map="uniform"), less) == says
    more = forged(records, "error_over_iid", [1.3, 1.3], [1.2, 1.2], [1.4, 1.4], map="uniform")
    assert word(more, less) == "Does not hold"


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"data": ["wine"]}, "data must be one of diabetes, .*; got 'wine'"),
        ({"map": ["positive"]}, "map must be one of iid, .*; got 'positive'"),
        ({"m": [16]}, "this study has the axes data, map; got m"),
    ],
)
def test_refusals(axes, said, tmp_path):
    with pytest.raises(ParameterError, match=said):
        study("regression", tmp_path, quick=True, axes=axes)
