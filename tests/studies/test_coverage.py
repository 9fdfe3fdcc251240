"""The study of coverage: what its quick form finds, and verdicts that records can turn over."""

import numpy as np
import pytest

from kernattn.errors import ParameterError
from kernattn.studies import PRESETS, study
from kernattn.studies._presets.coverage import PLACES, _new

pytest.importorskip("matplotlib")
verdicts = PRESETS["coverage"].sentences


def test_what_it_finds(found):
    """Random features hold far too few functions; landmarks and draws about as many as they say."""
    records, page, _ = found("coverage")
    for r in records:
        if r["way"] == "random":
            assert r["covered_high"] < 0.7
        elif r["way"] in ("landmarks", "draws"):
            assert 0.8 < r["covered"] < 0.98
    assert "Does not hold for random features: intervals hold the function as often as they say, inside" in page


def test_verdicts_follow_the_records(found):
    records = found("coverage")[0]
    for low, high, begins in (
        (0.89, 0.91, "Holds"),
        (0.5, 0.6, "Does not hold"),
        (0.85, 0.91, "Open"),
        (None, None, "Open"),
    ):
        told = verdicts([r | {"covered_low": low, "covered_high": high} for r in records])
        assert all(each.startswith(begins) for each in told)


def test_places():
    for place, (low, high) in PLACES.items():
        sizes = np.max(np.abs(_new(place, np.random.default_rng(0))), axis=1)
        assert low <= sizes.min() <= sizes.max() <= high


def test_of_a_table_what_cannot_be_is_refused_at_once(tmp_path):
    with pytest.raises(ParameterError, match=r"of a table \(flights\), place must be 'inside'"):
        study("coverage", tmp_path / "run", axes={"data": ["flights"], "way": ["draws"]})
    assert not list(tmp_path.iterdir())
