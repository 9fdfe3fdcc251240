"""The study of independence given others: what its quick form finds, and verdicts that records can turn over."""

import numpy as np
import pytest

from kernattn.studies import PRESETS
from kernattn.studies._presets.independence import ALTERNATIVES, draw

pytest.importorskip("matplotlib")
verdicts = PRESETS["independence"].sentences


def test_what_it_finds(found):
    """With six variables given, RCIT rejects far too many true nulls."""
    rates = {(r["test"], r["truth"]): r["rejected"] for r in found("independence")[0]}
    assert rates["kernattn", "null"] < 0.15 < rates["rcit", "null"]
    assert rates["kernattn", "line"] > 0.2


def test_verdicts_follow_the_records(found):
    records = found("independence")[0]
    for low, high, begins in ((0.04, 0.06, "Holds"), (0.1, 0.2, "Does not hold"), (0.05, 0.08, "Open")):
        made = [r | {"rejected": low, "rejected_low": low, "rejected_high": high} for r in records]
        assert all(each.startswith(begins) for each in verdicts(made)[:2])
    nulls = [r | {"rejected": 0.05} for r in records]
    for ours, begins in ((0.9, "Holds"), (0.1, "Does not hold")):
        made = [
            r | dict.fromkeys(("rejected", "rejected_low", "rejected_high"), ours if r["test"] == "kernattn" else 0.5)
            if r["truth"] == "line"
            else r
            for r in nulls
        ]
        assert verdicts(made)[2].startswith(begins)


@pytest.mark.parametrize("truth", ALTERNATIVES)
def test_y_has_of_the_noise_of_x_what_is_said(truth):
    x, y, z = draw("linear", truth, 2, 20000, 3, np.random.default_rng(0))
    along = z.sum(axis=-1) / np.sqrt(3)
    e, f = x - along, y - along
    signs = {"null": 0, "line": 0.2, "square": 0, "sign": 0}
    np.testing.assert_allclose(np.mean(e * f, axis=1), signs[truth], atol=0.03)
    np.testing.assert_allclose(np.mean(e**2 * f, axis=1), 0.4 if truth == "square" else 0, atol=0.06)
    turned = np.mean(e * f * np.sign(z[..., 0]), axis=1)
    np.testing.assert_allclose(turned, 0.25 if truth == "sign" else 0, atol=0.03)
