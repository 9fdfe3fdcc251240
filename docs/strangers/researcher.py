"""A researcher: kernels, a map, a sweep and rows of one's own; paired differences, a report and figures."""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import kernattn as ka


@dataclass(frozen=True)
class Exponential(ka.kernels.Stationary):
    r"""k(x, y) = e^{-|x - y|}."""

    lengthscale: float = 1.0

    def _evaluate(self, rows):
        return rows.xp.exp(-(rows.squared_distance() ** 0.5))


KERNEL = Exponential(2.0)
X = np.random.default_rng(0).standard_normal((32, 3))


def frequencies(m):
    """Return a map of m frequencies, whose law is Cauchy's in three dimensions."""

    def factory(rng):
        omega = rng.standard_normal((m, 3)) / np.abs(rng.standard_normal((m, 1))) / KERNEL.lengthscale
        return lambda x: np.concatenate([np.cos(x @ omega.T), np.sin(x @ omega.T)], axis=-1) / np.sqrt(m)

    return ka.features.from_function(dim=3, num_features=2 * m, factory=factory, kernel=KERNEL, rng=0)


def trial(cell, rng):
    """Measure one redraw."""
    if cell["map"] == "frequencies":
        phi = frequencies(cell["m"] // 2).redraw(rng)
    else:
        phi = ka.features.nystrom(X, KERNEL, cell["m"], method="uniform", rng=rng)
    return {"error": float(np.sqrt(np.mean((phi(X) @ phi(X).T - KERNEL(X, X)) ** 2)))}


def main(folder):
    """Measure, and draw what was measured."""
    axes = {"map": ("frequencies", "landmarks"), "m": (8, 16)}
    pairs = {"paired": ("map",), "against": {"map": "frequencies"}}  # both see the same random numbers
    sweep = ka.studies.Sweep("exponential", axes=axes, trial=trial, stop=ka.studies.Stop(draws=16), **pairs)
    records = ka.studies.run(sweep, folder / "study", workers=0)
    assert ka.studies.run(sweep, folder / "study", workers=0) == records  # nothing is measured twice
    assert "exponential" in Path(ka.studies.report(folder / "study")).read_text(encoding="utf-8")
    where = {"map": "landmarks"}
    (file,) = ka.studies.figures(folder / "study", "error", folder, size="column", formats="pdf", where=where)
    assert file.name == "error.pdf"
    ax = plt.figure().subplots()
    ka.studies.plot(folder / "study", "error", ax=ax, map="frequencies")  # beside lines of one's own
    plt.close(ax.figure)
    by = {(r["map"], r["m"]): r["error"] for r in records}
    assert by["landmarks", 16] < by["frequencies", 16] < by["frequencies", 8]
    assert all(r["error_difference_high"] < 0 for r in records if r["map"] == "landmarks")

    function = ka.kernels.from_function(lambda rows: rows.xp.exp(-rows.distance() / 2.0))  # the same, in one line
    np.testing.assert_allclose(function(X, X), KERNEL(X, X), rtol=1e-9, atol=1e-7)
    np.savetxt(folder / "mine.csv", X, delimiter=",")
    axes = {"estimator": ["rademacher_sketch"], "degree": [2], "m": [16]}
    asked = {"data": str(folder / "mine.csv"), "axes": axes, "draws": 16}
    (record,) = ka.studies.run(ka.studies.PRESETS["polynomial-sketch"].sweep, folder / "rows", settings=asked)
    assert record["inputs"].startswith("mine-")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        main(Path(place))
