"""A Hilbert basis in probabilistic programs: theirs to rounding, and a posterior that holds the noise of its data."""

import runpy

import numpy as np
import pytest

import kernattn as ka
from quality.tree import ROOT

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
    pytest.mark.parametrize("program", ["numpyro", "pymc"]),
]


def example(program):
    pytest.importorskip(program)
    return runpy.run_path(str(ROOT / "examples" / "probabilistic_programs.py"))


def test_bases(program):
    assert max(example(program)["differences"](program).values()) < 1e-12


@pytest.mark.slow
def test_posteriors(program):
    found = example(program)
    x, y = found["data"](40)
    phi = ka.features.hilbert(ka.kernels.Matern(2.5, 0.7), [-2.0, 2.0], (10,), boundary=1.5)
    samples = found["PROGRAMS"][program][0](phi, x, y, 60)
    assert samples["weights"].shape == (60, 10)
    assert 0.1 < np.median(samples["noise"]) < 0.4
    assert 0.1 < np.median(samples["lengthscale"]) < 2.0
