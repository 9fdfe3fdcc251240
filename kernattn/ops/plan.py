"""Which keys a row of exact attention sees, decided on the host before any work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["ALL", "CAUSAL", "Plan"]


@dataclass(frozen=True)
class Plan:
    """What n queries see of l keys: "all" of them, or as "causal" ones row i the keys j <= i + l - n."""

    kind: Literal["all", "causal"]


ALL, CAUSAL = Plan("all"), Plan("causal")
