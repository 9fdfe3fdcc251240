"""A study small enough for a test: 24 tokens of small norm, so that redraws see every tail."""

import numpy as np
import pytest

from kernattn.studies import figures, study

DRAWN = "kernattn.studies._presets.draw.write_figures"
PLACED = "matplotlib.layout_engine.ConstrainedLayoutEngine.execute"  # half the time of a figure
DRAWS = {"independence": 6, "tails": 8, "uniform": 8}  # half the quick form's, and all that is said of it holds


@pytest.fixture(scope="session")
def tokens_file(tmp_path_factory):
    """An .npz of q (9, 5), k (24, 5), v (24, 3) with v^2 below about 1."""
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("tokens") / "mine.npz"
    q, k = 0.4 * rng.standard_normal((9, 5)), 0.4 * rng.standard_normal((24, 5))
    np.savez(path, q=q, k=k.astype(np.float32), v=rng.standard_normal((24, 3)))
    return path


@pytest.fixture(scope="session")
def found(tmp_path_factory):
    """Records, page and files of each preset's quick form, made when first asked for, its figures in one format."""
    made = {}

    def find(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("kernattn.features._fitted.learn.STEPS", 50)  # no test asks how good fits are
                patch.setattr(DRAWN, lambda figures, *_: [f"{stem}.png" for stem in figures])
                records = study(name, folder, quick=True, draws=DRAWS.get(name))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(PLACED, lambda *_: None)
                figures(folder, formats=["png"])
            made[name] = (records, (folder / "summary.md").read_text(), {path.name for path in folder.iterdir()})
        return made[name]

    return find
