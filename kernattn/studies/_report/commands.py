"""The command that makes a study again, from the configuration of its folder."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernattn.studies._presets.attention.study import read_options


def study_command(config: Mapping[str, Any], folder: Path) -> str:
    """Return a line for a shell; for a study of one's own, in Python, a sentence."""
    settings = read_options(config.get("settings") or {})
    if "axes" not in settings:
        return f"# {config['study']} is a Sweep of one's own: kernattn.studies.run(sweep, {str(folder)!r})"
    words = ["kernattn", "study", config["study"], "--out", str(folder)]
    words += ["--quick"] * settings.get("quick", False)
    for name in ("seed", "precision", "draws", "data"):
        words += [f"--{name}", str(settings[name])] if settings.get(name) else []
    if settings["axes"]:
        words += ["--set", *(f"{axis}={','.join(map(str, values))}" for axis, values in settings["axes"].items())]
    return shlex.join(words)


def figure_command(name: str, folder: Path) -> str:
    """Return the line that draws one figure for a paper."""
    return shlex.join(["kernattn", "figures", str(folder), name, "--size", "page", "--formats", "pdf"])
