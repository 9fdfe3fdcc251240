"""Studies of examples draw nothing of their own: tests/studies look at their figures."""

import pytest


@pytest.fixture(autouse=True)
def no_figures_of_studies(no_figures):
    return no_figures
