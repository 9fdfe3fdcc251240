"""The study of polynomial sketches: its pairs, when it has intervals, what it finds, and verdicts that can turn."""

import numpy as np
import pytest

from kernattn.errors import ParameterError
from kernattn.studies import PRESETS, study
from kernattn.studies._presets.polynomial_sketch.measure import pairs_of
from kernattn.studies._presets.polynomial_sketch.settled import collisions_settled, squares_settled

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")
VERDICTS = PRESETS["polynomial-sketch"].sentences
COSINES = (0.0, 0.25, 0.5, 0.75, 1.0)


@pytest.mark.parametrize("inputs", ["spread", "sparse", "digits"])
def test_pairs_are_unit_rows_under_these_cosines(inputs):
    x, y = pairs_of(inputs)
    for rows in (x, y):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(np.sum(x * y, axis=1), COSINES, atol=1e-3 if inputs == "digits" else 1e-12)


def test_settled_is_the_skewness_of_a_mean_of_products():
    """Against 400,000 draws of the mean of 16 squared normals, whose square has a closed skewness too."""
    terms, draws = 16, 400_000
    mean = np.random.default_rng(0).chisquare(terms, draws) / terms  # degree 1, equal rows: t = u^2
    square = (mean - 1) ** 2
    skewness = np.mean((square - square.mean()) ** 3) / square.std() ** 3
    needed = skewness**2 / 0.4**2
    for redraws, settles in ((needed / 1.3, False), (needed * 1.3, True)):
        assert squares_settled(1, np.array([1.0]), terms, int(redraws), paired=False)[0] == settles
    few, many = (squares_settled(3, np.asarray(COSINES), 1024, redraws, False) for redraws in (10, 10_000))
    assert not few.any()
    assert many.all()


def test_rare_collisions_are_not_settled():
    """Of 4 equal coordinates, 6 pairs collide in a factor, each with probability 1/m: 6.25 events are enough."""
    row = np.array([[0.5] * 4])
    assert collisions_settled(1, row, 960, 1000)[0]  # 6.25 = 6 / m * redraws
    assert not collisions_settled(1, row, 961, 1000)[0]
    assert collisions_settled(2, row, 961, 1000)[0]


def test_finds(found):
    """At equal rows m Var of TensorSketch is 2 (2 - s)^p + ..., of independent signs (3 - 2 s)^p - 1: s = 1/32."""
    records, page, _ = found("polynomial-sketch")
    assert len(records) == 20
    by = {(r["inputs"], r["degree"], r["estimator"]): r for r in records}
    s, m = 1 / 32, 256
    for p in (2, 3):
        whole, cross = (3 - 2 * s) ** p, (2 - s) ** p
        closed = {
            "rademacher_sketch": (whole - 1) / m,
            "gaussian_sketch": (3**p - 1) / m,
            "complex_to_real": 2 * (cross - 1) / m,
            "tensor_sketch": 2 * (cross - 1) / m + 2 * (whole - 2 * cross + 1) / m**2,
        }
        for estimator, variance in closed.items():
            assert by["spread", p, estimator]["variance_predicted"][-1] == pytest.approx(variance, rel=1e-7)
        bounds = {"tensor_sketch": 2 + 3**p, "complex_to_real": 2 ** (p + 1) - 2}
        for estimator in ("tensor_srht", *closed):
            record, bound = by["spread", p, estimator], bounds.get(estimator, 3**p - 1) / m
            assert record["variance_predicted"][-1] < bound + 1e-12
            assert record["bound"] == pytest.approx(bound)
    settled = [r for r in records if r["degree"] == 2]
    flags = np.array([r["variance_settled"] for r in settled])
    assert np.mean(flags) > 0.8
    ratios = np.array([np.divide(r["variance"], r["variance_predicted"]) for r in settled])[flags]  # of measured ones
    assert 0.7 < ratios.min() < np.mean(ratios) < 1.1 < ratios.max() < 1.5
    assert "Does not hold: the variance of TensorSketch grows as 3^p" in page
    assert "Holds: the variance of complex weights grows as 2^p" in page
    assert "Holds: features of TensorSRHT never have more variance than the Rademacher sketch at odd degrees" in page


def word(records, holding):
    (told,) = (verdict for verdict in VERDICTS(records) if holding in verdict)
    return told.split(":")[0]


def times(records, factor, **where):
    """The records with other closed forms at some of them."""
    return [
        r | {"variance_predicted": [factor(r) * value for value in r["variance_predicted"]]}
        if all(r[key] == value for key, value in where.items())
        else r
        for r in records
    ]


def test_verdicts_turn(found):
    records, _, _ = found("polynomial-sketch")
    within = "lie above their published bound"
    assert word(records, within) == "Holds"
    assert word(times(records, lambda r: 2.0, estimator="gaussian_sketch"), within) == "Does not hold"
    high = [r | {"variance_low": [2 * r["bound"]] * len(COSINES)} for r in records]
    assert word(high, within) == "Does not hold"
    for estimator, grows in (("tensor_sketch", "TensorSketch grows as 3^p"), ("complex_to_real", "grows as 2^p")):
        steeper = times(records, lambda r: 1.5 ** r["degree"], estimator=estimator)
        expected = ("Does not hold", "Holds") if estimator == "tensor_sketch" else ("Holds", "Does not hold")
        assert (word(records, grows), word(steeper, grows)) == expected
    for parity, degree in (("odd", 3), ("even", 2)):
        lower = f"TensorSRHT never have more variance than the Rademacher sketch at {parity} degrees"
        cells = {"estimator": "tensor_srht", "degree": degree}
        assert word(times(records, lambda r: 0.1, **cells), lower) == "Holds"
        assert word(times(records, lambda r: 10.0, **cells), lower) == "Does not hold"
        assert word(times(records, lambda r: 10.0, inputs="digits", **cells), lower) == "Holds in part"
    assert len(VERDICTS([r for r in records if r["degree"] == 2 and r["estimator"] == "tensor_sketch"])) == 4


@pytest.mark.parametrize(
    ("axes", "said"),
    [
        ({"inputs": ["faces"]}, "inputs must be one of spread, sparse, digits; got 'faces'"),
        ({"estimator": ["positive"]}, "estimator must be one of tensor_sketch, .*; got 'positive'"),
        ({"m": [15]}, "m must be even, .*; got 15"),
        ({"degree": [0]}, "degree takes positive integers"),
    ],
)
def test_refusals(axes, said, tmp_path):
    with pytest.raises(ParameterError, match=said):
        study("polynomial-sketch", tmp_path, quick=True, axes=axes)
