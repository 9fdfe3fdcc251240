"""Pairs that a state recalls: the example says which rule serves where, and its figures say so too."""

import runpy

import pytest
from matplotlib import pyplot as plt

from quality.tree import ROOT


@pytest.fixture(autouse=True)
def no_figures_stay():
    yield
    plt.close("all")


def test_each_rule_serves_where_the_example_says():
    plt.switch_backend("Agg")
    found = runpy.run_path(str(ROOT / "examples" / "plot_capacity.py"))["run"](quick=True)
    once, again, after = (shares[-1] for shares in found.values())
    assert once["linear"] >= once["delta"] > 0.9
    assert again["delta"] > again["gated"] + 0.1 > again["linear"] + 0.2
    assert after["gated delta"] > after["delta"] + 0.05 > after["linear"] + 0.4
