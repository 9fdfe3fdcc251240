"""Studies of examples draw nothing of their own: tests/studies look at their figures."""

import pytest


@pytest.fixture(autouse=True)
def no_figures_of_studies(monkeypatch):
    monkeypatch.setattr("kernattn.studies._presets.draw.write_figures", lambda *_: [])
