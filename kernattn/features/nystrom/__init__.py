"""Nystrom maps: features from the kernel's own values at landmarks."""

from kernattn.features.nystrom.choose import LANDMARKS, nystrom
from kernattn.features.nystrom.map import Nystrom

__all__ = ["LANDMARKS", "Nystrom", "nystrom"]
