"""The command that makes a study again, from the configuration of its folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernattn.studies._presets.attention.settings import AttentionSettings

OPTIONS = {  # of the attention study
    "num_features": "--m",
    "estimators": "--estimators",
    "projections": "--projections",
    "scales": "--scales",
    "draws": "--draws",
    "precision": "--precision",
    "seed": "--seed",
}


def study_command(config: Mapping[str, Any], folder: Path) -> str:
    """Return a line for a shell; for a study of one's own, in Python, a sentence."""
    settings = config.get("settings") or {}
    words = ["kernattn", "study", config["study"], "--out", str(folder)]
    if "num_features" in settings:
        return shlex.join([*words, *_attention(settings)])
    if "axes" not in settings:
        return f"# {config['study']} is a Sweep of one's own: kernattn.studies.run(sweep, {str(folder)!r})"
    words += ["--quick"] * settings["quick"]
    words += ["--seed", str(settings["seed"])] * bool(settings["seed"])
    words += [] if settings["precision"] is None else ["--precision", str(settings["precision"])]
    if settings["axes"]:
        words += ["--set", *(f"{axis}={','.join(map(str, values))}" for axis, values in settings["axes"].items())]
    return shlex.join(words)


def _attention(settings: Mapping[str, Any]) -> list[str]:
    """Return the options in which an attention study differs from its full form, or from its quick one."""
    quick = AttentionSettings.quick()
    small = settings["keys"] == quick.keys
    usual: dict[str, Any] = asdict(quick if small else AttentionSettings())
    words = ["--quick"] * small
    if settings.get("data") is not None:
        words += ["--data", str(settings["data"])]
        usual["scales"] = (1.0,)
    for name, option in OPTIONS.items():
        value, own = settings[name], usual[name]
        if value is not None and (list(value) != list(own) if isinstance(own, tuple) else value != own):
            words += [option, *map(str, value if isinstance(own, tuple) else [value])]
    return words


def figure_command(name: str, folder: Path) -> str:
    """Return the line that draws one figure for a paper."""
    return shlex.join(["kernattn", "figures", str(folder), name, "--size", "page", "--formats", "pdf"])
