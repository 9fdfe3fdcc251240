"""Nystrom maps: features from the kernel's own values at landmarks."""

from kernattn.features._nystrom.choose import LANDMARKS, nystrom
from kernattn.features._nystrom.map import Nystrom

__all__ = ["LANDMARKS", "Nystrom", "nystrom"]
