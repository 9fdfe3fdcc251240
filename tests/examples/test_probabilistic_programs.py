"""A Hilbert basis in probabilistic programs: theirs to rounding, and a posterior that holds the noise of its data."""

import runpy

import numpy as np
import pytest

import kernattn as ka
from quality.tree import ROOT


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning")  # of theirs
@pytest.mark.parametrize("program", ["numpyro", "pymc"])
def test_bases_and_posteriors(program):
    pytest.importorskip(program)
    example = runpy.run_path(str(ROOT / "examples" / "probabilistic_programs.py"))
    assert max(example["differences"](program).values()) < 1e-12
    (sample, _), (x, y) = example["PROGRAMS"][program], example["data"](40)
    phi = ka.features.hilbert(ka.kernels.Matern(2.5, 0.7), [-2.0, 2.0], (10,), boundary=1.5)
    found = sample(phi, x, y, 60)
    assert found["weights"].shape == (60, 10)
    assert 0.1 < np.median(found["noise"]) < 0.4
    assert 0.1 < np.median(found["lengthscale"]) < 2.0
