"""Examples draw each figure of a study in one format: tests/studies draw in all of them."""

import pytest

from kernattn.studies._presets import draw


@pytest.fixture(autouse=True)
def figures_in_one_format(monkeypatch):
    save = draw.save
    monkeypatch.setattr(
        draw, "save", lambda *given: save(*given[:4], given[4] if len(given[4]) == 1 else ["png"], *given[5:])
    )
