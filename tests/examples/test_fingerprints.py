"""The example of fingerprints runs, and its variance is near the closed form."""

import re
import runpy

from quality.tree import ROOT


def test_it_runs(capsys):
    runpy.run_path(str(ROOT / "examples" / "fingerprints.py"))["main"](200, 64, quick=True)
    printed = capsys.readouterr().out
    assert "200 fingerprints in uint8 to 64 features" in printed
    assert abs(float(re.search(r"closed form: ([\d.]+)", printed)[1]) - 1) < 0.5
